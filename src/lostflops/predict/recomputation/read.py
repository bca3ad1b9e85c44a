"""From a run to the modules that could be run again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lostflops.predict.recomputation.calls import calls_of
from lostflops.predict.recomputation.recomputable import Recomputable

if TYPE_CHECKING:
    from lostflops.memory.blocks import Memory
    from lostflops.store.run import Run


def recomputable(run: Run, highest: Memory | None) -> Recomputable | None:
    """Of the memory with the highest peak; None where none was recorded."""
    return None if highest is None else Recomputable(calls_of(run, highest.rank), highest)
