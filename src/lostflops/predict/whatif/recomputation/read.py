"""Modules that could be run again, read from a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lostflops.predict.whatif.recomputation.calls import calls_of
from lostflops.predict.whatif.recomputation.recomputable import Recomputable

if TYPE_CHECKING:
    from lostflops.account.memory.blocks import RankMemory
    from lostflops.store.run import Run


def recomputable(run: Run, highest: RankMemory | None) -> Recomputable | None:
    """Read the modules of the rank with the highest peak; None if no memory was recorded."""
    return None if highest is None else Recomputable(calls_of(run, highest.rank), highest)
