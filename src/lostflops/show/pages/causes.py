"""Why is the run slow, where that can be told while somebody waits for a page?"""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lostflops.account.ledger.few_steps import is_large
from lostflops.core.results import Result
from lostflops.explain.advise.diagnose import diagnose
from lostflops.explain.advise.summary import LARGE

if TYPE_CHECKING:
    from lostflops.store.run import Run

OPEN: Final = 3
"""Findings that are shown at once; the others are behind a click."""


def causes(run: Run) -> Result:
    name = shlex.quote(run.called)
    if is_large(run):
        return Result("diagnosis", "Diagnosis", LARGE, next_command=f"lostflops diagnose {name}")
    found = diagnose(run, most=OPEN)
    following = f"explain {name} 1" if found.blocks[0].to_json() else f"whatif {name} --all"
    return replace(found, next_command=f"lostflops {following}")
