"""Since when has a job been slower? Steps from before that say little about the ranks and the time of now."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

from lostflops.account.facts.changes import ChangeFinder, ComparedStep, JobChange
from lostflops.account.pace.timings import PACED, within

if TYPE_CHECKING:
    from lostflops.store.run import Run

_MOST_COMPARED: Final = 50_000
"""At most so many of the last steps are compared with each other."""
_LAST_STEPS: Final = 16
"""A change is over if most of so many last steps are nearer to the time before it."""
_COMPARED: Final = f"""
    with {PACED}
    from (select step, slowest_ns from paced where settled order by step desc limit {_MOST_COMPARED})
    order by step"""


def find_last_change(run: Run, attempt: int) -> JobChange | None:
    """Return the last change for the worse of an attempt's steps; None if there was none, or it is over."""
    return run.keep(("last change", attempt), lambda: _find_last_change(run, attempt))


def _find_last_change(run: Run, attempt: int) -> JobChange | None:
    columns = run.columns(_COMPARED.format(within=within((), attempt)))
    finder, last = ChangeFinder(), None
    for step, ns in zip(columns["step"].tolist(), columns["slowest_ns"].tolist(), strict=True):
        last = finder.take(ComparedStep(step=step, time=ns)) or last
    if last is None or median(columns["slowest_ns"][-_LAST_STEPS:]) <= (last.before + last.after) / 2:
        return None
    return last
