"""The first steps, every n-th step or a single stalled step are far slower and take a large part of the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import sqrt
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from lostflops.account.ledger.samples import FEWEST, places
from lostflops.account.pace.rhythm import MOST_STEPS, Rhythm, find_rhythm
from lostflops.account.pace.timings import PHASES
from lostflops.core.estimate import Estimate, Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_ns, format_share, pluralise
from lostflops.explain.advise.claim import Claim, Place
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs.series import StepSeries, Values, series
from lostflops.explain.advise.signs.step_lines import Traced, collect_traced_steps
from lostflops.predict.costs.quantiles import t_quantile
from lostflops.predict.whatif.interval import CONFIDENCE

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case

Rows = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_SLOW: Final = 1.5
"""A step is slow if it takes more than this many times the median normal step."""
_FAR_SLOWER: Final = 3.0
"""The same for the first steps: jobs that start together are a little slow at first."""
_FAR_SLOWER_TRACED: Final = 2.0
"""The same for the first steps of a trace without timings: device times do not vary with the load of the host."""
_FEWEST: Final = 20
"""At least this many normal steps are needed."""
_FEWEST_TRACED: Final = 6
"""At least this many steps are needed if there is only a trace."""
_FIRST: Final = 0.1
"""The extra time of slow first steps must be at least this part of all steps: every job has some."""
_AT_FIRST: Final = 3
"""A warm-up has at least this many slow steps in a row, after the very first."""
_AT_FIRST_TRACED: Final = 2
"""In a trace it has at least this many: its first step may be slow because the profiler starts."""
_PERIODIC: Final = 0.03
_TIMES: Final = 3
"""A period needs at least this many slow steps of a trace at equal distances."""
_REGULAR: Final = 0.7
"""At least this part of all slow steps must follow the period."""
_STALL: Final = 10.0
"""A single stall must take more than this many times a normal step."""
_STALL_SHARE: Final = 0.1
"""Its extra time must be at least this part of the time of all steps."""
_MOST_STEPS: Final = 10
_EXTRA: Final = "the extra time of the slow steps, as a part of all steps"
_MOST_OF_EXCESS: Final = 0.3
"""A source line is named if it has at least this part of the extra stack samples in slow steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _StepSeries:
    """Settled steps in order: those that the collector timed, otherwise those of the trace."""

    ranks: tuple[int, ...]
    step: Rows
    ns: Values
    timed: StepSeries | None
    shown: Traced | None
    rows: Rows
    """Rows of these steps in `timed`."""

    @property
    def usual(self) -> float:
        return float(np.median(self.ns))

    @property
    def beyond(self) -> Values:
        return np.maximum(self.ns - self.usual, 0)

    def share(self, slow: Flags) -> float:
        return float(self.beyond[slow].sum() / self.ns.sum())


_CONFIRM: Final = (
    "record stack samples over several slow steps (lostflops run --steps 8:20): the same code must run in each."
)
_SAMPLED: Final = """
    select t.rank, t.step, s.stack from timings t left join samples s
    on s.rank = t.rank and s.time >= t.start and s.time < t.stop
    where t.attempt = {attempt} and t.profiled and exists (from samples where rank = t.rank)"""
"""Stack samples of the profiled steps; null for steps without samples."""
_QUARTILES: Final = 1.349
"""The quartiles of a normal distribution are this many standard deviations apart."""


def ordinal(number: int) -> str:
    """Return a number as an ordinal.

    >>> [ordinal(number) for number in (2, 3, 5, 11, 21)]
    ['2nd', '3rd', '5th', '11th', '21st']
    """
    teen = number % 100 // 10 == 1
    return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def _find(case: Case) -> Iterator[Claim]:
    steps, fewest, in_a_row, far = _steps(case)
    if steps is None or steps.step.size < fewest:
        return
    slow = steps.ns > _SLOW * steps.usual
    first = np.cumprod(steps.ns > far * steps.usual).astype(np.bool_)
    if in_a_row <= first.sum() < slow.size / 2 and steps.share(first) >= _FIRST:
        yield _at_first(steps, first)
    slow &= ~np.cumprod(slow).astype(np.bool_)
    if steps.timed is None:
        period = _period(steps.step[slow])
        if period and steps.share(slow) >= _PERIODIC:
            yield _periodic_in_trace(steps, slow, period)
        return
    rhythm = find_rhythm(steps.step, np.where(first, steps.usual, steps.ns))
    if rhythm is not None and rhythm.share >= _PERIODIC:
        yield _periodic(case, steps, rhythm)
    yield from _stall(steps, slow if rhythm is None else slow & ~rhythm.is_slow)


def _steps(case: Case) -> tuple[_StepSeries | None, int, int, float]:
    """Return the steps, how many are needed, how many slow ones in a row make a warm-up, and how many times slower they
    must be."""
    if case.timed_steps is not None:
        timed = series(case)
        rows = np.flatnonzero(timed.settled)[-MOST_STEPS:]
        return (
            _StepSeries(
                ranks=timed.ranks, step=timed.step[rows], ns=timed.ns[rows], timed=timed, shown=None, rows=rows
            ),
            _FEWEST,
            _AT_FIRST,
            _FAR_SLOWER,
        )
    shown = collect_traced_steps(case)
    known = (
        None
        if shown is None
        else _StepSeries(
            ranks=shown.ranks, step=shown.step, ns=shown.ns, timed=None, shown=shown, rows=np.empty(0, np.int64)
        )
    )
    return known, _FEWEST_TRACED, _AT_FIRST_TRACED, _FAR_SLOWER_TRACED


def _period(steps: Rows) -> int:
    """Return the distance that most slow steps have to the one before; 0 if they come at irregular times.

    >>> _period(np.array([5, 15, 25, 35])), _period(np.array([5, 6, 17, 40])), _period(np.array([5, 15]))
    (10, 0, 0)
    """
    apart = Counter(np.diff(steps).tolist())
    if steps.size < _TIMES:
        return 0
    ((period, times),) = apart.most_common(1)
    return period if period > 1 and times >= max(_TIMES - 1, _REGULAR * (steps.size - 1)) else 0


def _attribute_slow_steps(steps: _StepSeries, slow: Flags) -> Mapping[Place, int]:
    """Attribute the extra time of slow steps compared with the others, line by line; nothing if there is no trace of
    them."""
    if steps.shown is None:
        return {}
    lines = steps.shown.lines
    kept = Traced(steps.shown.ranks, steps.shown.step[slow], lines[:, slow])
    return kept.beyond(np.median(lines[:, ~slow], axis=1))


def _at_first(steps: _StepSeries, slow: Flags) -> Claim:
    share, count = steps.share(slow), int(slow.sum())
    return Claim(
        cause="warmup",
        what=(
            f"The first {pluralise(count, 'step')} are far slower than the rest: "
            f"{format_share(share)} of all step time."
        ),
        taken=_attribute_slow_steps(steps, slow),
        evidence=(_evidence(steps, slow, "the first recorded steps"),),
        strength=Strength.FAIR,
        certain_if="record a longer run: it must have no more slow steps than this one.",
        fix=(
            "Nothing, if real runs are much longer than this one. Else keep compile caches between runs "
            "(TORCHINDUCTOR_CACHE_DIR=...), set torch.backends.cudnn.benchmark = False, and run the largest shape "
            "first. Measure step times after the warm-up."
        ),
        saving=Estimate.bound(share, _EXTRA),
    )


def _periodic_in_trace(steps: _StepSeries, slow: Flags, period: int) -> Claim:
    share = steps.share(slow)
    return Claim(
        cause="warmup",
        what=f"Every {ordinal(period)} step is far slower than the rest: {format_share(share)} of all step time.",
        taken=_attribute_slow_steps(steps, slow),
        evidence=(_evidence(steps, slow, f"{period} steps apart"),),
        strength=Strength.FAIR,
        certain_if=_CONFIRM,
        fix=_less_often(period, ""),
        saving=Estimate.bound(share, _EXTRA),
    )


def _periodic(case: Case, steps: _StepSeries, rhythm: Rhythm) -> Claim:
    source = _source(case, steps, rhythm)
    doing = f" in {source}" if source else _phase(steps, rhythm.is_slow)
    evidence = _evidence(steps, rhythm.is_slow, f"every {ordinal(rhythm.period)} step")
    if source:
        evidence = replace(evidence, sources=(source,))
    return Claim(
        cause="warmup",
        what=(
            f"Every {ordinal(rhythm.period)} step takes {format_ns(round(rhythm.excess))} longer{doing}: "
            f"{format_share(rhythm.share)} of all step time."
        ),
        taken={},
        evidence=(evidence, Evidence(f"probability of such a regular pattern by chance: {rhythm.p_value:.2g}")),
        strength=Strength.STRONG,
        certain_if=_CONFIRM,
        fix=_less_often(rhythm.period, source),
        saving=_measure_saving(steps, rhythm),
    )


def _measure_saving(steps: _StepSeries, rhythm: Rhythm) -> Estimate:
    """Return the mean excess of all steps; its range comes from the spread of the slow steps."""
    slow = np.sort(steps.ns[rhythm.is_slow])
    spread = float(np.subtract(*np.quantile(slow, (0.75, 0.25)))) / _QUARTILES
    share, freedom = rhythm.share, slow.size - 1.0
    off = share * t_quantile(CONFIDENCE, freedom) * spread / sqrt(slow.size) / rhythm.excess
    basis = f"the mean extra time of {slow.size:,} slow steps, as a part of all {steps.step.size:,} timed steps"
    return Estimate.measured(share, off, basis)


def _less_often(period: int, source: str) -> str:
    if source:
        return f"Run {source} less often than every {ordinal(period)} step, or in another thread or process."
    return (
        f"Find what the program does every {ordinal(period)} step (evaluation, checkpoint, logging, a new DataLoader: "
        "set persistent_workers=True), and do it less often or in another thread or process."
    )


def _source(case: Case, steps: _StepSeries, rhythm: Rhythm) -> str:
    """Return the line of the program that stack samples show more often in slow steps; empty if no line is clearly more
    frequent. Samples are taken only while a window is open, so the profiled steps of the same phase show it."""
    timed = steps.timed
    if timed is None:
        return ""
    query = _SAMPLED.format(attempt=timed.attempt)
    seen: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    counted_steps: dict[bool, set[tuple[int, int]]] = {True: set(), False: set()}
    for rank, step, stack in case.run.rows(query):
        is_slow = step % rhythm.period == rhythm.phase
        counted_steps[is_slow].add((rank, step))
        if stack is not None:
            seen[is_slow] += places(Counter({stack: 1}))
    if not counted_steps[True] or seen[True].total() < FEWEST:
        return ""
    usual = max(len(counted_steps[False]), 1)
    more = {frame: count / len(counted_steps[True]) - seen[False][frame] / usual for frame, count in seen[True].items()}
    largest, whole = max(more, key=more.__getitem__), sum(value for value in more.values() if value > 0)
    return largest if more[largest] > 0 and more[largest] >= _MOST_OF_EXCESS * whole else ""


def _stall(steps: _StepSeries, slow: Flags) -> Iterator[Claim]:
    """Yield a single step that takes a large part of the run."""
    slow = slow & (steps.ns > _STALL * steps.usual)
    share = steps.share(slow)
    if slow.sum() != 1 or share < _STALL_SHARE:
        return
    at = int(np.flatnonzero(slow)[0])
    number, took = int(steps.step[at]), round(float(steps.ns[at]))
    yield Claim(
        cause="warmup",
        what=(
            f"Step {number} stalled{_phase(steps, slow)}: it took {format_ns(took)} instead of "
            f"{format_ns(round(steps.usual))}, {format_share(share)} of all step time."
        ),
        taken={},
        evidence=(_evidence(steps, slow, f"step {number}"),),
        strength=Strength.FAIR,
        certain_if=f"check the logs of the job and its hosts at step {number} (storage, network, memory, other jobs).",
        fix="Find out what stalled the job. If it happens again, record stacks during the stall with lostflops snap.",
        saving=Estimate.bound(share, _EXTRA),
        suspected=f"It happened once in {pluralise(steps.step.size, 'step')}, so it may not happen again.",
    )


def _phase(steps: _StepSeries, slow: Flags) -> str:
    """Say in which phase the training thread spends more time in slow steps than in others."""
    timed, more = steps.timed, {}
    for phase in PHASES if timed is not None else ():
        values = timed.column(phase)[steps.rows] if timed is not None else np.empty((0, 0))
        if np.isfinite(values[slow]).any() and np.isfinite(values[~slow]).any():
            more[phase] = float(np.nanmedian(values[slow]) - np.nanmedian(values[~slow]))
    largest = max(more, key=more.__getitem__, default="")
    names = {"data": "waiting for a batch", "outside": "between the passes", "optimizer": "in the optimizer"}
    return f" ({names.get(largest, f'in the {largest} pass')})" if largest else ""


def _evidence(steps: _StepSeries, slow: Flags, how: str) -> Evidence:
    typical = round(float(np.median(steps.ns[slow])))
    return Evidence(
        f"{pluralise(int(slow.sum()), 'slow step')} ({how}) of {format_ns(typical)}; the median of "
        f"{steps.step.size:,} steps is {format_ns(round(steps.usual))}",
        ranks=steps.ranks,
        steps=tuple(steps.step[slow][:_MOST_STEPS].tolist()),
    )


RULE: Final = Rule(
    cause="warmup",
    about=(
        "The first steps of a job are slow: caches are empty, libraries choose algorithms, memory is allocated. Other "
        "slow steps come every n steps, with an epoch, an evaluation or a checkpoint, or once, when storage or the "
        "network stalls. A median step time hides all of them. Lostflops finds them in the times of all steps; a "
        "period must be too regular for chance."
    ),
    find=_find,
)
