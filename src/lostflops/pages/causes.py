"""Why is the run slow, where that can be told while somebody waits for a page?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lostflops.advise.diagnose import diagnose
from lostflops.advise.summary import LARGE, is_large
from lostflops.results import Result

if TYPE_CHECKING:
    from lostflops.store.run import Run

OPEN: Final = 3
"""Findings that are shown at once; the others are behind a click."""


def causes(run: Run) -> Result:
    return Result("diagnosis", "Diagnosis", LARGE) if is_large(run) else diagnose(run, most=OPEN)
