"""Step time, exposed communication and efficiency at each number of ranks, from timelines and factors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.predict.scaling.replay import replay
from lostflops.predict.scaling.retime import Factor, Kind, Retiming
from lostflops.predict.scaling.timeline import Call, Timeline

_TWO_SIDED: Final = 1.96
_MEDIAN_ERROR: Final = 1.2533
"""Standard error of a median over that of a mean, of normal values."""
_NORMAL: Final = 1.4826
"""Standard deviation of normal values over their median distance from the median."""


@dataclass(frozen=True, slots=True)
class Check:
    """What was measured beside its replay with nothing changed; `spread` is how uncertain the median over steps is."""

    measured: float
    replayed: float
    spread: float
    progress: float
    steps: int

    @property
    def error(self) -> float:
        return abs(self.replayed - self.measured)


@dataclass(frozen=True, slots=True)
class Answer:
    """One number of ranks, in ns. `efficiency` is against the measured run, `alone` against a rank that exchanges
    nothing; `factors` are those of the collectives that grow."""

    ranks: int
    hosts: int
    step: float
    low: float
    high: float
    exposed: float
    speedup: float
    efficiency: float
    alone: float
    factors: Mapping[Kind, Factor]


def kind_of(call: Call) -> Kind:
    return Kind(call.op, call.size, call.group)


class Model:
    """The timelines of a run, ready to be replayed at other numbers of ranks."""

    def __init__(self, timelines: Sequence[Timeline], retiming: Retiming, *, world: int, strong: bool) -> None:
        self._timelines, self._retiming, self._world, self._strong = timelines, retiming, world, strong
        measured = _by_step(timelines, [one.measured for one in timelines])
        middle = median(measured)
        distance = median(abs(value - middle) for value in measured)
        self.check = Check(
            middle,
            self._median([replay(one) for one in timelines]),
            _TWO_SIDED * _MEDIAN_ERROR * _NORMAL * distance / len(measured) ** 0.5,
            self._median([one.compute + one.other for one in timelines]),
            len(measured),
        )

    def answer(self, ranks: int, hosts: int) -> Answer:
        check, more = self.check, ranks / self._world
        compute = 1 / more if self._strong else 1.0
        factors = {kind: self._retiming.factor(kind, ranks) for kind in self._kinds()}
        low, step, high = sorted(self._step(factors, which, compute) for which in ("low", "value", "high"))
        progress = self._median([compute * one.compute + one.other for one in self._timelines])
        wider = check.spread + check.error
        speedup = check.measured / step * (1 if self._strong else more)
        return Answer(
            ranks,
            hosts,
            step,
            max(low - wider, 0.0),
            high + wider,
            max(step - progress, 0.0),
            speedup,
            speedup / more,
            min(self._alone(ranks) / step, 1.0),
            {kind: factor for kind, factor in factors.items() if self._retiming.grows(kind.group)},
        )

    def _alone(self, ranks: int) -> float:
        """Of a rank that exchanges nothing: its step, divided among the ranks where the work is."""
        if not self._strong:
            return self.check.progress
        return self._median([self._world * one.compute + one.other for one in self._timelines]) / ranks

    def _kinds(self) -> list[Kind]:
        return list(dict.fromkeys(kind_of(call) for one in self._timelines for call in one.calls))

    def _step(self, factors: Mapping[Kind, Factor], which: str, compute: float) -> float:
        steps = []
        for one in self._timelines:
            transfers = [
                factors[kind_of(call)].apply(queued.alone, which)
                for call, queued in zip(one.calls, one.queued, strict=True)
            ]
            steps.append(replay(one, transfers, compute))
        return self._median(steps)

    def _median(self, values: Sequence[npt.NDArray[np.float64]]) -> float:
        return median(_by_step(self._timelines, values))


def _by_step(timelines: Sequence[Timeline], values: Sequence[npt.NDArray[np.float64]]) -> list[float]:
    """Means over ranks, in the order of steps."""
    found: dict[int, list[float]] = {}
    for one, own in zip(timelines, values, strict=True):
        for number, value in zip(one.steps, own.tolist(), strict=True):
            found.setdefault(number, []).append(value)
    return [sum(own) / len(own) for _, own in sorted(found.items())]
