"""Step time against batch size: a fixed part and a part for each sample.

Throughput is batch / (fixed + each * batch). It approaches 1 / each, and reaches a share s of that at s / (1 - s) *
fixed / each. Measured times are drawn again within their errors, and the line is fitted to each draw: intervals include
nine of ten. A run differs from its own repetition by more than its steps differ, so no error is below the spread of
runs; if the sizes are not on a line within their errors, the errors are increased (Birge's ratio).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, sqrt
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.core.stats import MachineKind

Values = npt.NDArray[np.float64]

NEAR: Final = 0.9
"""Share of the asymptote that is worth reaching."""
LINEAR: Final = 0.1
_CLEAR: Final = 3.0
"""A size counts as off the line of the others only if the difference is more than this many errors (and than
`LINEAR`)."""
_DRAWS: Final = 4000
_TAILS: Final = (0.05, 0.95)


@dataclass(frozen=True, slots=True)
class FittedStepTime:
    """Time of the typical step at a batch size."""

    batch: int
    ns: float
    error: float
    """Standard error as a part of `ns`."""
    freedom: float


@dataclass(frozen=True, slots=True)
class ValueRange:
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """Step time as lines over the batch size."""

    measured: tuple[FittedStepTime, ...]
    fixed: Values
    """Drawn values of the fixed time in ns; the fitted one is first."""
    each: Values
    """Drawn values of the time per sample in ns; the fitted one is first."""
    off: float | None
    """Part by which the worst size is off the line of the others; None with two sizes."""
    is_linear: bool | None
    """Whether each size is within `LINEAR` of the line of the others, or errors explain the difference; None with two
    sizes."""

    def step_ns(self, batch: float) -> ValueRange:
        return _span(self.fixed + self.each * batch)

    def rate(self, batch: float) -> ValueRange:
        """Return samples per second."""
        return _span(1e9 * batch / (self.fixed + self.each * batch))

    def is_told(self, batch: int) -> bool:
        """Return whether the line predicts this batch size: outside the measured sizes only if it is a line and clearly
        rises."""
        if self.is_linear is False:
            return False
        return self._grows or self.measured[0].batch <= batch <= self.measured[-1].batch

    @property
    def asymptote(self) -> ValueRange | None:
        """Samples per second of infinitely large batches; None if times do not clearly grow with the batch."""
        return _span(1e9 / np.where(self.each > 0, self.each, np.nan)) if self._grows else None

    @property
    def near(self) -> ValueRange | None:
        """Batch size that reaches `NEAR` of the asymptote; None if times do not clearly grow with the batch."""
        if not self._grows:
            return None
        return _span(NEAR / (1 - NEAR) * self.fixed / np.where(self.each > 0, self.each, np.nan))

    @property
    def _grows(self) -> bool:
        return bool((self.each > 0).mean() > _TAILS[1]) and float(self.each[0]) > 0


def times(measured: Sequence[FittedStepTime]) -> BatchTimes | None:
    """Fit step times to two or more sizes; None if a run has too few steps to estimate its error."""
    if len(measured) < 2 or not all(isfinite(one.error) for one in measured):
        return None
    batch = np.array([one.batch for one in measured], np.float64)
    ns = np.array([one.ns for one in measured])
    error = np.array([max(one.error, MachineKind.ACCELERATOR.spread) for one in measured]) * ns
    off, is_linear = _off(batch, ns, error)
    fixed, each = _fit_lines(batch, ns[np.newaxis], error)
    freedom = len(measured) - 2
    misfit = float((((ns - fixed[0] - each[0] * batch) / error) ** 2).sum())
    error = error * max(1.0, sqrt(misfit / freedom)) if freedom else error
    chance = np.random.default_rng(len(measured))
    degrees = np.array([max(one.freedom, 2.0) for one in measured])
    drawn = ns + error * chance.standard_t(degrees, (_DRAWS, len(measured)))
    all_fixed, all_each = _fit_lines(batch, np.concatenate([ns[np.newaxis], drawn]), error)
    return BatchTimes(tuple(measured), all_fixed, all_each, off, is_linear)


def _off(batch: Values, ns: Values, error: Values) -> tuple[float | None, bool | None]:
    if len(batch) < 3:
        return None, None
    worst, is_linear = 0.0, True
    places = np.arange(len(batch))
    for left in places:
        kept = places != left
        fixed, each = _line(batch[kept], ns[np.newaxis, kept], error[kept])
        missed = abs(float(fixed[0] + each[0] * batch[left] - ns[left]))
        # The line of the others is as uncertain as their errors, carried to this size.
        weight = 1 / error[kept] ** 2
        middle = (weight * batch[kept]).sum() / weight.sum()
        spread = (weight * (batch[kept] - middle) ** 2).sum()
        unsure = sqrt(error[left] ** 2 + 1 / weight.sum() + (batch[left] - middle) ** 2 / spread)
        worst = max(worst, missed / float(ns[left]))
        is_linear &= missed <= max(LINEAR * float(ns[left]), _CLEAR * unsure)
    return worst, is_linear


def _fit_lines(batch: Values, ns: Values, error: Values) -> tuple[Values, Values]:
    """Fit a line to each row. A step without a batch cannot take negative time, so such a line goes through zero; a
    larger batch cannot take less time, so such a line is level."""
    fixed, each = _line(batch, ns, error)
    weight = 1 / error**2
    steep = (weight * batch * ns).sum(axis=1) / (weight * batch**2).sum()
    level = (weight * ns).sum(axis=1) / weight.sum()
    return np.where(each < 0, level, np.maximum(fixed, 0)), np.where(each < 0, 0, np.where(fixed < 0, steep, each))


def _line(batch: Values, ns: Values, error: Values) -> tuple[Values, Values]:
    weight = 1 / error**2
    middle = (weight * batch).sum() / weight.sum()
    off = weight * (batch - middle)
    each = (off * ns).sum(axis=1) / (off * (batch - middle)).sum()
    return (weight * ns).sum(axis=1) / weight.sum() - each * middle, each


def _span(values: Values) -> ValueRange:
    found = values[np.isfinite(values)]
    if not found.size:
        return ValueRange(inf, inf, inf)
    low, high = np.quantile(found, _TAILS)
    return ValueRange(float(values[0]), min(float(low), float(values[0])), max(float(high), float(values[0])))
