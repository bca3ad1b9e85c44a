"""Step time, exposed communication and efficiency at each number of ranks, from timelines and factors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.predict.scaling.replay import replay
from lostflops.predict.scaling.retime import CallKind, Factor, Retiming
from lostflops.predict.scaling.timeline import Queued, StepCall, StepTimeline

_TWO_SIDED: Final = 1.96
_MEDIAN_ERROR: Final = 1.2533
"""Standard error of a median over that of a mean, for normal values."""
_NORMAL: Final = 1.4826
"""Standard deviation of normal values over their median distance from the median."""


@dataclass(frozen=True, slots=True)
class ReplayCheck:
    """Measured step time and its replay with nothing changed, in ns."""

    measured: float
    replayed: float
    spread: float
    """Uncertainty of the median over steps."""
    progress: float
    """Step time without communication."""
    steps: int

    @property
    def error(self) -> float:
        return abs(self.replayed - self.measured)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleAnswer:
    """Prediction for one number of ranks, times in ns."""

    ranks: int
    hosts: int
    step: float
    low: float
    high: float
    exposed: float
    speedup: float
    efficiency: float
    """Against the measured run."""
    alone: float
    """Efficiency against a rank that exchanges nothing."""
    factors: Mapping[CallKind, Factor]
    """Factors of the collectives that grow."""


def kind_of(call: StepCall) -> CallKind:
    return CallKind(call.op, call.size, call.group)


class ScalingModel:
    """The timelines of a run, ready to be replayed at other numbers of ranks."""

    def __init__(self, timelines: Sequence[StepTimeline], retiming: Retiming, *, world: int, strong: bool) -> None:
        self._timelines, self._retiming, self._world, self._strong = timelines, retiming, world, strong
        measured = _by_step(timelines, [one.measured for one in timelines])
        middle = median(measured)
        distance = median(abs(value - middle) for value in measured)
        self.check = ReplayCheck(
            middle,
            self._median([replay(one) for one in timelines]),
            _TWO_SIDED * _MEDIAN_ERROR * _NORMAL * distance / len(measured) ** 0.5,
            self._median([one.compute + one.other for one in timelines]),
            len(measured),
        )

    def answer(self, ranks: int, hosts: int) -> ScaleAnswer:
        check, more = self.check, ranks / self._world
        compute = 1 / more if self._strong else 1.0
        factors = _widen_intervals(
            {kind: self._retiming.factor(kind, ranks) for kind in self._kinds()}, self._retiming.grows
        )
        low, step, high = sorted(self._step(factors, which, compute) for which in ("low", "value", "high"))
        progress = self._median([compute * one.compute + one.other for one in self._timelines])
        wider = check.spread + check.error
        speedup = check.measured / step * (1 if self._strong else more)
        return ScaleAnswer(
            ranks=ranks,
            hosts=hosts,
            step=step,
            low=max(low - wider, 0.0),
            high=high + wider,
            exposed=max(step - progress, 0.0),
            speedup=speedup,
            efficiency=speedup / more,
            alone=min(self._alone(ranks) / step, 1.0),
            factors={kind: factor for kind, factor in factors.items() if self._retiming.grows(kind.group)},
        )

    def _alone(self, ranks: int) -> float:
        """Return the step time of a rank that exchanges nothing, divided among the ranks if the work is."""
        if not self._strong:
            return self.check.progress
        return self._median([self._world * one.compute + one.other for one in self._timelines]) / ranks

    def _kinds(self) -> list[CallKind]:
        return list(dict.fromkeys(kind_of(call) for one in self._timelines for call in one.calls))

    def _step(self, factors: Mapping[CallKind, Factor], which: str, compute: float) -> float:
        steps = []
        for one in self._timelines:
            pairs = list(zip(one.calls, one.queued, strict=True))
            transfers = [_transfer(factors[kind_of(call)], call, queued, which) for call, queued in pairs]
            waits = [_wait(factors[kind_of(call)], queued, which, compute) for call, queued in pairs]
            steps.append(replay(one, transfers, compute, waits))
        return self._median(steps)

    def _median(self, values: Sequence[npt.NDArray[np.float64]]) -> float:
        return median(_by_step(self._timelines, values))


def _widen_intervals(factors: Mapping[CallKind, Factor], grows: Callable[[str], bool]) -> dict[CallKind, Factor]:
    """Return the factors with wider intervals for calls that grow by an unknown amount because they lack a size: they
    keep their time, and the interval lets them grow as any other call does."""
    told = [one for one in factors.values() if one.group is not None and not one.is_absolute]
    if not told:
        return dict(factors)
    low, high = min(1.0, *(one.low for one in told)), max(1.0, *(one.high for one in told))
    return {
        kind: replace(one, low=low, high=high) if one.group is None and grows(kind.group) else one
        for kind, one in factors.items()
    }


def _transfer(factor: Factor, call: StepCall, queued: Queued, which: str) -> float:
    """Return how long a call moves data alone; if its wait is a guess, one end of the interval assumes that it moved
    data meanwhile."""
    found = factor.apply(queued.alone, which)
    outer = "high" if factor.value >= 1 else "low"
    if call.met or factor.is_absolute or factor.group is None or which != outer:
        return found
    return max(0.0, factor.apply(queued.alone + queued.wait, which) - queued.wait)


def _wait(factor: Factor, queued: Queued, which: str, compute: float) -> float:
    """Return how long a call waits for members, 0 in a group of one rank. Waits stay as measured; but if late ranks
    compute for longer, they change with compute, and the interval includes both."""
    if factor.group is not None and factor.group.ranks == 1:
        return 0.0
    ends = {"low": min(1.0, compute), "high": max(1.0, compute)}
    return queued.wait * ends.get(which, 1.0)


def _by_step(timelines: Sequence[StepTimeline], values: Sequence[npt.NDArray[np.float64]]) -> list[float]:
    """Return means over ranks, in the order of steps."""
    found: dict[int, list[float]] = {}
    for one, own in zip(timelines, values, strict=True):
        for number, value in zip(one.steps, own.tolist(), strict=True):
            found.setdefault(number, []).append(value)
    return [sum(own) / len(own) for _, own in sorted(found.items())]
