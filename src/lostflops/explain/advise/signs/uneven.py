"""Uneven work, from step to step or permanent: whether ranks compute longer when they have more.

Times alone cannot tell uneven work from noise: ranks that share cores take turns in being slow as well. So the time of
a rank is laid beside what it did in that step; without a host, the forward passes of microbatches beside their backward
passes, which are other ops at another time and have only the work in common (as in "Understanding Stragglers in Large
Model Training Using What-if Analysis", OSDI 2025).
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
"""Relative standard deviation of work between the ranks of a step, below which it is even."""
_ALIKE: Final = 0.7
"""Correlation of time and work between the ranks of a step."""
_UNEVEN_FOR_GOOD: Final = 0.1
_ALIKE_FOR_GOOD: Final = 0.9
"""The same where ranks keep their places: the speed of a device does so, too."""
_FEWEST: Final = 8
"""Pairs of rank and step, beyond one a step for its mean."""
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
    """`unit` is what was counted, `apart` by what part ranks of one step differ in it (standard deviation), `alike` how
    closely the time that they compute follows it (correlation), over `pairs` of a rank and a step."""

    unit: str
    apart: float
    alike: float
    pairs: int
    for_good: bool = False
    """Ranks keep their places from step to step."""


def uneven(case: Case) -> Uneven | None:
    """None where work is even, or time does not follow it."""
    seen, cohort = _beside(case), case.judgement.comparison.cohort
    found = [_follows(unit, work, time, cohort) for unit, work, time in seen]
    found += [_follows(unit, work, time, cohort, for_good=True) for unit, work, time in seen]
    return next((one for one in found if one is not None), None) or _microbatches(case)


def _beside(case: Case) -> list[tuple[str, Floats, Floats]]:
    """Work and time by rank and step, of ranks as in the comparison."""
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
    """Forward passes of all steps, in which ranks wait for nobody."""
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
    """Both relative to the cohort in the same step; and, unless it is about what stays so `for_good`, to what is usual
    for the rank: what it always does more, or always does slower, changes nothing from step to step."""
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
    """To the mean of the cohort in the step; less the mean of the rank over all steps, unless that is asked for."""
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
