"""Ranks that are late, and whether they do more work than others. Each wait has one cause.

A rank that is late while it does the same work is a straggler. A rank that does more work is badly balanced, and so are
ranks that take turns in being late as their work changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lostflops.core.estimate import Strength
from lostflops.explain.advise.case import once_per_case
from lostflops.explain.advise.signs.work_done import work_done

if TYPE_CHECKING:
    from lostflops.account.blame.stragglers import SlowRank
    from lostflops.explain.advise.case import Case
    from lostflops.explain.advise.signs.work_done import WorkDone

_SURE: Final = 0.8
"""Evidence that a rank is late is strong from this confidence: the judge gives less if few steps show it."""
_EXPLAINS: Final = 0.4
"""Additional work must explain at least this part of the extra compute time of a rank."""


@dataclass(frozen=True, slots=True)
class LateRank:
    """A rank that is late, and whether that is due to more work."""

    found: SlowRank
    strength: Strength
    more: float = 0.0
    """Share by which it did more work than its peers; 0 if it did the same."""
    done: WorkDone | None = None
    """The count of work in which it did more."""


@once_per_case
def late_ranks(case: Case) -> list[LateRank]:
    """Return the ranks that are late according to `blame.habits`, the one that caused the longest waits first."""
    return [LateRank(one, _strength(one.confidence), *_more(case, one)) for one in case.judgement.late]


def _strength(confidence: float) -> Strength:
    return Strength.STRONG if confidence >= _SURE else Strength.FAIR


def _more(case: Case, one: SlowRank) -> tuple[float, WorkDone | None]:
    """Return the share by which a rank did more work, if that explains enough of its extra compute time."""
    if one.line != "compute":
        return 0.0, None
    comparison = case.judgement.comparison
    place = comparison.place(one.rank)
    longer = one.line_excess / max(one.steps, 1)
    needed = longer / max(float(comparison.computed[place]) - longer, 1.0)
    cohort = [rank for rank in case.mesh.cohort(one.rank, case.run.ranks) if rank != one.rank]
    for done in work_done(case):
        more = done.beyond(one.rank, cohort)
        if more is not None and more >= _EXPLAINS * needed:
            return more, done
    return (needed, None) if one.cause == "more_work" else (0.0, None)
