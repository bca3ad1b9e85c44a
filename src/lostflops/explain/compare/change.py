"""By how much does the step time of two jobs differ, and is that more than chance?

Two locations are compared: the typical step and the mean, each over all runs of the job, not only the recorded ones.
Runs of one job differ by more than their steps show: other neighbours, other clocks, other places in memory. So if a
side has several runs, each counts once, by its location, and the difference is judged by Welch's t on the logarithms of
locations: with two or three runs a bootstrap of runs is far too narrow. The interval is never narrower than if both
sides varied alike, because Welch's is too narrow for few runs against many. A side with one run is assumed to vary as
the other does. With one run on each side, runs are assumed to differ as much as parts of these runs do (`blocks`), plus
as much as runs on a machine of their kind do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import expm1, inf, log, sqrt
from statistics import fmean
from typing import Final

from lostflops.account.pace.blocks import Location
from lostflops.core.stats import NINE_OF_TEN, MachineKind, t_quantile

CONFIDENCE: Final = 0.98
"""Each end of the interval of the typical step, and of the mean, is beyond the truth in 1% of pairs: so both together
report a difference, or fail a gate, in at most 2% of pairs at either end."""
ASSURED: Final = 0.9
"""Confidence of the interval whose upper end lets a candidate pass: it is too low in 5% of pairs. Both locations must
pass, so no correction for two is needed."""
SMALLEST: Final = 0.01
"""A smaller difference is never reported, however certain: the places of code and data in memory cause as much, and may
be the same in all runs of a side (Mytkowicz et al., ASPLOS 2009)."""
MARGIN: Final = 0.02
"""Two sides are the same if they differ by at most this part."""
_ASSUMED_FREEDOM: Final = 4.0
"""The spread between runs that no run shows counts as if five runs had measured it, so that answers are seldom wrong
where runs differ twice as much (docs/explanation/comparing.md)."""
_MOST_FREEDOM: Final = 1e6


class Verdict(StrEnum):
    FASTER = "faster"
    SLOWER = "slower"
    SAME = "no difference"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Noise:
    """Uncertainty of one run's location, as parts of it."""

    runs: float
    """Standard deviation over runs."""
    steps: float
    """Part of it that the run's own steps explain."""
    freedom: float
    """Degrees of freedom; infinite if no side has several runs that would measure `runs`."""

    @property
    def is_measured(self) -> bool:
        return self.freedom < inf

    @property
    def between(self) -> float:
        """Largest part by which two runs differ in nine of ten cases, however many steps they have."""
        return NINE_OF_TEN * sqrt(2 * max(self.runs**2 - self.steps**2, 0.0))


@dataclass(frozen=True, slots=True)
class RelativeChange:
    """Time that B takes more than A, as a part of A; negative if it takes less."""

    log: float
    """Logarithm of the ratio of B to A."""
    error: float
    """Standard error of `log`; infinite if a side has a single step."""
    freedom: float
    """Degrees of freedom of `error`."""
    noise: Noise

    @property
    def value(self) -> float:
        return expm1(self.log)

    @property
    def low(self) -> float:
        return expm1(self.log - self._reach(CONFIDENCE))

    @property
    def high(self) -> float:
        return _up(self.log + self._reach(CONFIDENCE))

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    @property
    def at_most(self) -> float:
        """Upper end of the change, which decides whether a candidate passes."""
        return _up(self.log + self._reach(ASSURED))

    def _reach(self, confidence: float) -> float:
        return t_quantile(confidence, self.freedom) * self.error if self.error else 0.0

    @property
    def sign(self) -> int:
        """1 or -1 if the change is beyond chance and large enough to be reported; otherwise 0."""
        if abs(self.value) < SMALLEST:
            return 0
        return (self.low > 0) - (self.high < 0)

    def within(self, margin: float) -> bool:
        return -margin <= self.low and self.high <= margin


def change(before: Sequence[Location], after: Sequence[Location], machine: MachineKind) -> RelativeChange:
    """Compare the runs of two sides. The kind of machine says how far runs differ if each side has one.

    >>> runs = [Location(value, 0.001, 50) for value in (99.0, 100.0, 101.0)]
    >>> slow = [Location(value, 0.001, 50) for value in (109.0, 110.0, 111.0)]
    >>> found = change(runs, slow, MachineKind.HOST)
    >>> round(found.low, 3), round(found.value, 3), round(found.high, 3), round(found.at_most, 3)
    (0.068, 0.1, 0.133, 0.119)
    """
    sides = [[log(run.value) for run in side] for side in (before, after)]
    steps = [fmean(run.error**2 for run in side) for side in (before, after)]
    counts = [len(side) for side in sides]
    if min(counts) > 1:
        runs = [max(_variance(side), own) for side, own in zip(sides, steps, strict=True)]
        parts = [run / count for run, count in zip(runs, counts, strict=True)]
        freedom = _satterthwaite(parts, [count - 1 for count in counts])
        noise = Noise(sqrt(fmean(runs)), sqrt(fmean(steps)), freedom)
        parts = [max(sum(parts), _pool_variance(runs, counts))]
    elif max(counts) > 1:
        many = max(sides, key=len)
        run = max(_variance(many), *steps)
        parts, freedom = [run / count for count in counts], len(many) - 1
        noise = Noise(sqrt(run), sqrt(fmean(steps)), freedom)
    else:
        runs = [2 * machine.spread**2, *(side[0].drift ** 2 for side in (before, after))]
        parts = [*steps, *runs]
        known = [_ASSUMED_FREEDOM, before[0].drift_freedom, after[0].drift_freedom]
        freedom = _satterthwaite(parts, [before[0].freedom, after[0].freedom, *known])
        noise = Noise(sqrt(sum(runs) / 2 + fmean(steps)), sqrt(fmean(steps)), inf)
    return RelativeChange(fmean(sides[1]) - fmean(sides[0]), sqrt(sum(parts)), freedom, noise)


def _variance(values: Sequence[float]) -> float:
    middle = fmean(values)
    return sum((value - middle) ** 2 for value in values) / (len(values) - 1)


def _pool_variance(runs: Sequence[float], counts: Sequence[int]) -> float:
    """Return the variance of the difference if both sides vary alike. A side of two runs looks calm too often, and
    Welch's test believes it if the other side has many runs."""
    own = [count - 1 for count in counts]
    together = sum(run * free for run, free in zip(runs, own, strict=True)) / sum(own)
    return together * sum(1 / count for count in counts)


def _up(power: float) -> float:
    return expm1(power) if power < 700 else inf


def _satterthwaite(parts: Sequence[float], freedoms: Sequence[float]) -> float:
    """Return the degrees of freedom of a sum of variances that each have their own."""
    if inf in parts:
        return 0.0
    known = sum(part**2 / own for part, own in zip(parts, freedoms, strict=True) if part)
    return min(sum(parts) ** 2 / known, _MOST_FREEDOM) if known else _MOST_FREEDOM


def verdict(typical: RelativeChange, average: RelativeChange, margin: float = MARGIN) -> Verdict:
    """Judge by the typical step and by the mean, which shows rare long steps; return inconclusive if they contradict
    each other. Two sides are the same only if both are."""
    signs = {typical.sign, average.sign} - {0}
    if signs == {1}:
        return Verdict.SLOWER
    if signs == {-1}:
        return Verdict.FASTER
    is_same = not signs and typical.within(margin) and average.within(margin)
    return Verdict.SAME if is_same else Verdict.INCONCLUSIVE
