"""Factors by which the transfer of each collective changes with the number of ranks.

A factor is the ratio of two answers from the same source, so that the level is the run's own: T(n) / T(measured) times
the measured transfer. If the source does not know the measured group, its answer for n is used as it is. No transfer
gets shorter in a larger group on more hosts: the interval of a factor ends there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

from lostflops.core.errors import UnknownCost
from lostflops.predict.costs.times import OPS, CollectiveTime, CommGroup, CommTimes, Op
from lostflops.predict.scaling.growth import Growing

KEPT: Final = "as measured"


class CallKind(NamedTuple):
    """Operation, size and group that similar calls have in common."""

    op: str
    size: int | None
    group: str


@dataclass(frozen=True, slots=True)
class Factor:
    """Factor for a transfer, with its interval."""

    value: float
    low: float
    high: float
    group: CommGroup | None = None
    """Group at the new number of ranks, None if the transfer is kept as measured."""
    algorithm: str = KEPT
    source: str = ""
    reach: str = ""
    is_absolute: bool = False
    """Whether `value`, `low` and `high` are times in ns instead of factors, because the measured group is unknown."""

    def apply(self, alone: float, which: str) -> float:
        factor: float = getattr(self, which)
        return factor if self.is_absolute else factor * alone


_SAME: Final = Factor(1.0, 1.0, 1.0)


class Retiming:
    """Factors of the groups that grow, each computed once."""

    def __init__(self, grows: Growing, times: CommTimes) -> None:
        self.grows, self._times = grows, times
        self.factor: Callable[[CallKind, int], Factor] = cache(self._factor)

    def _factor(self, kind: CallKind, ranks: int) -> Factor:
        measured = self.grows.recorded_group(kind.group)
        if measured is None or kind.op not in OPS or kind.size is None:
            return _SAME
        then = self.grows.layout.at(kind.group, ranks)
        if then == measured:
            return Factor(1.0, 1.0, 1.0, then)
        if then.ranks == 1:
            return Factor(0.0, 0.0, 0.0, then, "none")
        wanted = self._times.time(kind.op, kind.size, then)
        base = self._look_up(kind.op, kind.size, measured)
        told = (then, wanted.algorithm, wanted.source, wanted.reach)
        if base is None:
            return Factor(wanted.ns, wanted.low, wanted.high, *told, is_absolute=True)
        value, low, high = _ratio(wanted, base)
        if then.ranks >= measured.ranks and then.hosts >= measured.hosts:
            low = max(low, min(value, 1.0))
        elif then.ranks <= measured.ranks and then.hosts <= measured.hosts:
            high = min(high, max(value, 1.0))
        return Factor(value, low, high, *told)

    def _look_up(self, op: Op, size: int, measured: CommGroup) -> CollectiveTime | None:
        try:
            found = self._times.time(op, size, measured)
        except UnknownCost:
            return None
        return found if found.ns > 0 else None


def _ratio(wanted: CollectiveTime, base: CollectiveTime) -> tuple[float, float, float]:
    """Return one time over another, with its interval: errors that a carried-over time shares with its origin
    cancel."""
    value, low, high = (ns / base.ns for ns in (wanted.ns, wanted.low, wanted.high))
    if wanted.reach and wanted.source == base.source and base.low > 0:
        low, high = min(low * base.ns / base.low, value), max(high * base.ns / base.high, value)
    return value, low, high
