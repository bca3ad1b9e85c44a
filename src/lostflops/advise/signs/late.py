"""Ranks that are late, and whether they do more than others: each wait has one cause.

A rank that is late while it does the same work is a straggler. One that does more is badly balanced, and so are ranks
that take turns in being late as their work changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.blame.stragglers import SMALLEST, in_steps

if TYPE_CHECKING:
    from lostflops.advise.case import Case
    from lostflops.advise.signs.work_done import Done
    from lostflops.blame.stragglers import Straggler

_PROVEN: Final = 0.01
"""Chance of being the last so often, below which it is none."""
_LIKELY: Final = 0.05
_ENOUGH: Final = 3
"""Steps from which on habit can be told from chance."""
_TIMED: Final = 8
"""Steps besides, in which a rank must be the last as well, in so large a part:"""
_OFTEN: Final = 0.4
_SPREADS: Final = 4.0
"""Standard errors of the mean excess over steps; steps that follow each other are not independent, so that three,
which would do for chance alone, alarm in jobs whose ranks share cores."""
_EXPLAINS: Final = 0.4
"""Part of what a rank computes longer that its additional work must explain."""


@dataclass(frozen=True, slots=True)
class LateRank:
    """`more` is by which share it did more than its cohort, in what `done` counts; 0 where it did the same."""

    found: Straggler
    confidence: float
    more: float = 0.0
    done: Done | None = None


def late_ranks(case: Case) -> list[LateRank]:
    """Those that are late by habit; most waited for first."""
    found = []
    for one in case.judgement.stragglers:
        more, done = _more(case, one)
        sure = _confidence(case, one, is_explained=done is not None)
        if sure is not None:
            found.append(LateRank(one, sure, more, done))
    return found


def _confidence(case: Case, one: Straggler, *, is_explained: bool) -> float | None:
    """None where it may be chance. Who was counted to do more need not come last to every collective: where small ones
    follow each other, any rank may."""
    habit = _habit(case, one.rank)
    if habit is not None and not habit and not is_explained:
        return None
    comparison = case.judgement.comparison
    by_step = comparison.by_step[comparison.place(one.rank)]
    known = by_step[~np.isnan(by_step)]
    proven = one.p_value <= _PROVEN
    if known.size < _ENOUGH or not in_steps(comparison):
        return 0.85 if proven else 0.6 if one.p_value <= _LIKELY else None
    spread = float(known.std(ddof=1)) / float(np.sqrt(known.size))
    steady = float(known.mean()) >= _SPREADS * spread
    if not steady or one.kind != "persistent":
        return (0.85 if habit else 0.5) if proven and one.kind == "persistent" else None
    return 0.95 if proven or habit else 0.85


def _habit(case: Case, rank: int) -> bool | None:
    """Whether the rank also comes last to the collectives of steps that were not profiled; None where these do not
    tell. Where cores are shared, a rank may well be slow in all of a handful of steps by chance."""
    found = case.lateness
    if case.told is None or found is None:
        return None
    own = next((late for late in found.ranks if late.rank == rank), None)
    if own is None or found.why_not or found.accelerated or own.steps < _TIMED:
        return None
    least = max(float(found.resolution), SMALLEST * (case.told.pace.p50 or 0.0))
    return own.p_value <= _PROVEN and own.steps_last >= _OFTEN * own.steps and own.lateness >= least


def _more(case: Case, one: Straggler) -> tuple[float, Done | None]:
    """By which share it did more, where that explains most of what it computes longer."""
    if one.line != "compute":
        return 0.0, None
    comparison = case.judgement.comparison
    place = comparison.place(one.rank)
    longer = one.line_excess / max(one.steps, 1)
    needed = longer / max(float(comparison.computed[place]) - longer, 1.0)
    cohort = [rank for rank in case.mesh.cohort(one.rank) if rank != one.rank]
    for done in case.done:
        more = done.beyond(one.rank, cohort)
        if more is not None and more >= _EXPLAINS * needed:
            return more, done
    return (needed, None) if one.cause == "more_work" else (0.0, None)
