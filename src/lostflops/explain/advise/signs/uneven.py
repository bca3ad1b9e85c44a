"""Uneven work, from step to step or permanent: whether ranks compute longer when they have more.

Times alone cannot distinguish uneven work from noise: ranks that share cores take turns in being slow as well. So the
time of a rank is compared with its work in that step. Otherwise the forward passes of microbatches are compared with
their backward passes, which are other ops at another time and have only the work in common (as in "Understanding
Stragglers in Large Model Training Using What-if Analysis", OSDI 2025).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from lostflops.account.ledger.lines import LINES
from lostflops.explain.advise.signs.work_done import work_done

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case

Floats = npt.NDArray[np.float64]
_UNEVEN: Final = 0.05
"""Work is even if its relative standard deviation between the ranks of a step is below this."""
_ALIKE: Final = 0.7
"""Time follows work if their correlation between the ranks of a step is at least this."""
_UNEVEN_FOR_GOOD: Final = 0.1
"""Work that is uneven in the same way in every step must differ by at least this: the speed of a device also stays the
same."""
_ALIKE_FOR_GOOD: Final = 0.9
"""The correlation of time and work must then be at least this."""
_FEWEST: Final = 8
"""At least this many pairs of rank and step are needed, in addition to one per step for its mean."""
_COMPUTE: Final = LINES.index("compute")
_FORWARD: Final = """
    select rank, step, coalesce(device_forward, forward) as ns from timings
    where attempt = {attempt} and coalesce(device_forward, forward) is not null and not coalesce(compiled, false)
      and step > (select min(step) from timings where attempt = {attempt})"""
_PASSES: Final = """
    with own as (
        select rank, stage, step, microbatch, coalesce(chunk, 0) as chunk,
               max(stop - start) filter (direction = 'forward') as ahead,
               max(stop - start) filter (direction = 'backward') as back
        from passes where stage is not null and microbatch is not null group by all
    ), apart as (
        select ahead - avg(ahead) over likes as ahead, back - avg(back) over likes as back,
               avg(ahead) over likes as usual
        from own where ahead is not null and back is not null window likes as (partition by rank, chunk)
    )
    select corr(ahead, back), stddev_pop(ahead) / nullif(avg(usual), 0), count(*) from apart"""


@dataclass(frozen=True, slots=True)
class Uneven:
    """Work that differs between ranks, and compute time that follows it."""

    unit: str
    """Unit in which work was counted."""
    apart: float
    """Relative standard deviation of the work between the ranks of a step."""
    alike: float
    """Correlation of compute time and work."""
    pairs: int
    """Number of pairs of a rank and a step."""
    for_good: bool = False
    """Each rank always has more or less work than the others."""


def uneven(case: Case) -> Uneven | None:
    """Return the uneven work; None if work is even, or time does not follow it."""
    seen, cohort = _beside(case), case.judgement.comparison.cohort
    found = [_follows(unit, work, time, cohort) for unit, work, time in seen]
    found += [_follows(unit, work, time, cohort, for_good=True) for unit, work, time in seen]
    return next((one for one in found if one is not None), None) or _microbatches(case)


def _beside(case: Case) -> list[tuple[str, Floats, Floats]]:
    """Return unit, work and time by rank and step, for the ranks of the comparison."""
    comparison = case.judgement.comparison
    if not comparison.ranks.size:
        return []
    compute = np.full((comparison.ranks.size, comparison.steps.size), np.nan)
    for one in case.judgement.profiles:
        if one.steps.size:
            compute[comparison.place(one.rank), np.searchsorted(comparison.steps, one.steps)] = one.lines[:, _COMPUTE]
    timed = _read_forward_times(case)
    found = []
    for done in work_done(case):
        if timed is not None and done.unit != "FLOPs":
            found.append((done.unit, done.of(comparison.ranks, timed[0]), timed[1]))
        found.append((done.unit, done.of(comparison.ranks, comparison.steps), compute))
    return found


def _read_forward_times(case: Case) -> tuple[npt.NDArray[np.int64], Floats] | None:
    """Read the forward passes of all steps, in which no rank waits for another."""
    if case.timed_steps is None:
        return None
    columns = case.run.columns(_FORWARD.format(attempt=case.timed_steps.pace.attempt)).values()
    rank, step, ns = (np.asarray(column) for column in columns)
    ranks = case.judgement.comparison.ranks
    known = np.isin(rank, ranks)
    steps, column = np.unique(step[known].astype(np.int64), return_inverse=True)
    took = np.full((ranks.size, steps.size), np.nan)
    took[np.searchsorted(ranks, rank[known]), column] = ns[known]
    return steps, took


def _follows(
    unit: str, work: Floats, time: Floats, cohort: npt.NDArray[np.int64], *, for_good: bool = False
) -> Uneven | None:
    """Compare work and time, both relative to the peers in the same step; return None if work is even or time does not
    follow it. Unless `for_good`, both are also relative to the mean of the rank: what it always does more, or more
    slowly, changes nothing from step to step."""
    known = ~np.isnan(work) & ~np.isnan(time)
    whole = known.all(axis=0) if known.size else np.zeros(0, np.bool_)
    work, time = work[:, whole], time[:, whole]
    pairs = int(work.size - work.shape[1])
    if pairs < _FEWEST or np.bincount(cohort).max(initial=0) < 2:
        return None
    more, longer = (_relative(values, cohort, for_good=for_good) for values in (work, time))
    apart = float(more.std())
    least, closely = (_UNEVEN_FOR_GOOD, _ALIKE_FOR_GOOD) if for_good else (_UNEVEN, _ALIKE)
    if apart < least or float(longer.std()) == 0:
        return None
    alike = float(np.corrcoef(more.ravel(), longer.ravel())[0, 1])
    return Uneven(unit, apart, alike, pairs, for_good) if alike >= closely else None


def _relative(values: Floats, cohort: npt.NDArray[np.int64], *, for_good: bool) -> Floats:
    """Return values relative to the mean of the peers in the step; minus the rank's own mean over all steps, unless
    `for_good`."""
    found = np.zeros(values.shape)
    for label in range(int(cohort.max(initial=-1)) + 1):
        rows = np.flatnonzero(cohort == label)
        mean = values[rows].mean(axis=0)
        found[rows] = values[rows] / np.maximum(mean, 1e-9) - 1
    return found if for_good else np.asarray(found - found.mean(axis=1, keepdims=True))


def _microbatches(case: Case) -> Uneven | None:
    ((alike, apart, pairs),) = case.run.rows(_PASSES)
    if alike is None or apart is None or pairs < _FEWEST or apart < _UNEVEN or alike < _ALIKE:
        return None
    return Uneven("microbatches", apart, alike, pairs)
