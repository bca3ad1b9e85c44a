"""Times of collectives from all that is known about a cluster, the most certain source first.

A group is looked up as measured, then extrapolated from another group size at the same level, then composed of
collectives inside hosts and across them: first in a calibration, then in the run's own collectives. NCCL's model of a
described topology comes last. Each answer names its source and what was extrapolated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Final, Protocol

from lostflops.core.errors import UnknownCost
from lostflops.predict.costs.algorithms import FORMS, algorithms_of, derive_scale_factors, hierarchical, measured_form
from lostflops.predict.costs.calibration import Key
from lostflops.predict.costs.curve import Curve
from lostflops.predict.costs.nccl import nccl_times
from lostflops.predict.costs.times import OPS, CollectiveTime, CommGroup, Op
from lostflops.predict.costs.topology import NetworkTopology

ERROR_PER_DOUBLING: Final = 0.15
"""Relative error per doubling of ranks away from a measured group: at least this, or what is seen between groups that
were measured. Groups that are closer than a doubling count as one doubling apart: distance is not why they differ."""
ANOTHER_ALGORITHM: Final = 0.5
"""Relative error of a time that was measured with another algorithm."""
ANOTHER_WAY: Final = 2.0
"""Factor by which a composed time may be wrong either way, because the backend may work differently: around one ring,
all of a tensor crosses between two hosts twice, and in parts once."""
SIZES: Final = tuple(1 << power for power in range(10, 34))
"""Sizes at which algorithms are compared: 1 KiB to 8 GiB."""

_ALGORITHMS: Final = ("ring", "tree", "hierarchical", "sends")
_PAIRS: Final = {"host": ("pair.host", "host"), "across": ("pair.across", "across"), "world": ("pair.across", "across")}


class CalibrationCurves(Protocol):
    """A calibration, or anything else that has its curves."""

    @property
    def backend(self) -> str | None: ...
    @property
    def date(self) -> str | None: ...
    @property
    def curves(self) -> Mapping[Key, Curve]: ...


@dataclass(frozen=True, slots=True)
class _TableMatch:
    ns: float
    low: float
    high: float
    reach: str

    def widen_interval(self, factor: float, *reaches: str) -> _TableMatch:
        reach = "; ".join(filter(None, (self.reach, *reaches)))
        return _TableMatch(self.ns, self.low / factor, self.high * factor, reach)


@dataclass(frozen=True, slots=True)
class _Source:
    """Curves of one backend that come from one place."""

    name: str
    """Name of the source in an answer."""
    backend: str
    curves: Mapping[Key, Curve]
    errors: Mapping[tuple[str, str], float]
    """Relative error per doubling of ranks, by operation and level."""

    @classmethod
    def of(cls, name: str, measured: CalibrationCurves) -> _Source:
        backend = measured.backend or ""
        curves = {key: curve for key, curve in measured.curves.items() if key[0] in OPS}
        return cls(name, backend, curves, _errors(backend, curves))

    def time(self, op: Op, size: int, group: CommGroup, algorithm: str | None) -> CollectiveTime | None:
        if algorithm == "hierarchical" and group.level != "world":
            algorithm = None
        names, found = self._fastest(op, size, group, algorithm)
        if found is None and algorithm in {None, "hierarchical"} and group.level == "world":
            names, found = "hierarchical", self._compose_hierarchical(op, size, group)
            if found is not None:
                factor = ANOTHER_WAY if algorithm is None else 1 + ERROR_PER_DOUBLING
                found = found.widen_interval(
                    factor, f"{_describe_group(group)} composed of times inside and across hosts"
                )
        if found is None:
            return None
        return CollectiveTime(
            ns=found.ns, low=found.low, high=found.high, algorithm=names, source=self.name, reach=found.reach
        )

    def _fastest(
        self, op: Op, size: int, group: CommGroup, algorithm: str | None = None
    ) -> tuple[str, _TableMatch | None]:
        """Return the time of the algorithm asked for, or of the best that the backend uses, and its name; equally fast
        ones are all named."""
        native = algorithms_of(self.backend, op)
        names = (algorithm,) if algorithm else native
        asked = ((name, self._at_level(op, size, group, name)) for name in names if (op, name) in FORMS)
        found = [(name, time) for name, time in asked if time is not None]
        if algorithm in native and len(native) > 1:
            either = f"measured with {' or '.join(native)}, whichever was used"
            found = [(name, time.widen_interval(1 + ANOTHER_ALGORITHM, either)) for name, time in found]
        if not found:
            return "", None
        best = min((time for _, time in found), key=lambda time: time.ns)
        return "/".join(name for name, time in found if time.ns == best.ns), best

    def _at_level(self, op: Op, size: int, group: CommGroup, algorithm: str) -> _TableMatch | None:
        """Return the time from the nearest group that was measured at the same level, None if there is no such
        group."""
        near = min(self._keys(op, group), key=lambda key: _distance(key, op, group), default=None)
        if near is None:
            return None
        _, level, ranks, hosts = near
        native = algorithms_of(self.backend, op)
        same = op == "send_recv" or (ranks, hosts) == (group.ranks, group.hosts)
        if same and algorithm in native:
            return _read_curve(self.curves[near], size)
        form = measured_form(self.backend, op, algorithm)
        found = _extrapolate_curve(
            self.curves[near], size, *derive_scale_factors(form, ranks, FORMS[op, algorithm], group.ranks)
        )
        if algorithm not in native:
            found = found.widen_interval(1 + ANOTHER_ALGORITHM, f"{algorithm} from a measured {native[0]}")
        if same:
            return found
        other = CommGroup(ranks, hosts)
        doublings = abs(math.log2(group.ranks / ranks)) or abs(math.log2(group.hosts / hosts))
        error = (1 + self.errors.get((op, level), ERROR_PER_DOUBLING)) ** max(doublings, 1)
        return found.widen_interval(
            error * _adapters(group, other), f"{_describe_group(group)} from {_describe_group(other)}"
        )

    def _keys(self, op: Op, group: CommGroup) -> Iterator[Key]:
        if op == "send_recv":
            for level in _PAIRS[group.level]:
                if found := [key for key in self.curves if key[:2] == (op, level)]:
                    yield from found
                    return
            yield from (key for key in self.curves if key[:2] == (op, "ring") and (key[3] > 1) == (group.hosts > 1))
            return
        yield from (key for key in self.curves if key[:2] == (op, group.level) and key[2] > 1)

    def _compose_hierarchical(self, op: Op, size: int, group: CommGroup) -> _TableMatch | None:
        parts = []
        for part in hierarchical(op, size, group):
            _, found = self._fastest(part.op, part.size, part.group)
            if found is None:
                return None
            parts.append(found)
        reaches = dict.fromkeys(part.reach for part in parts if part.reach)
        return _TableMatch(
            sum(part.ns for part in parts),
            sum(part.low for part in parts),
            sum(part.high for part in parts),
            "; ".join(reaches),
        )


@dataclass(frozen=True, slots=True)
class CollectiveTimes:
    """Times of collectives of a group from what was measured, learned or described; satisfies `CommTimes`."""

    sources: tuple[_Source, ...]
    topology: NetworkTopology | None

    @classmethod
    def of(
        cls,
        *,
        calibration: CalibrationCurves | None = None,
        learned: CalibrationCurves | None = None,
        topology: NetworkTopology | None = None,
    ) -> CollectiveTimes:
        sources = []
        if calibration is not None:
            day = f" of {calibration.date[:10]}" if calibration.date else ""
            sources.append(_Source.of(f"calibration{day}", calibration))
        if learned is not None:
            sources.append(_Source.of("learned from the run's own collectives", learned))
        return cls(tuple(sources), topology)

    def time(self, op: Op, size: int, group: CommGroup, algorithm: str | None = None) -> CollectiveTime:
        if group.ranks == 1:
            return CollectiveTime(ns=0.0, low=0.0, high=0.0, algorithm="none", source="one rank sends nothing")
        for source in self.sources:
            if found := source.time(op, size, group, algorithm):
                return found
        if self.topology is not None and (modelled := _model_nccl_time(op, size, group, algorithm, self.topology)):
            return modelled
        raise UnknownCost(self._unknown(op, group, algorithm))

    def choices(self, op: Op, size: int, group: CommGroup) -> tuple[CollectiveTime, ...]:
        """Return the times of all algorithms that the most certain source knows, the fastest first."""
        names = [name for name in _ALGORITHMS if name != "hierarchical" or group.level == "world"]
        for source in self.sources:
            asked = dict.fromkeys((*names, *algorithms_of(source.backend, op)))
            if found := _fastest_first(source.time(op, size, group, algorithm) for algorithm in asked):
                return found
        if self.topology is not None:
            known = nccl_times(op, size, group, self.topology)
            return _fastest_first((*known, _model_nccl_time(op, size, group, "hierarchical", self.topology)))
        raise UnknownCost(self._unknown(op, group, None))

    def crossover(self, op: Op, group: CommGroup) -> tuple[tuple[int, str], ...]:
        """Return which algorithm wins from which size on."""
        found: list[tuple[int, str]] = []
        for size in SIZES:
            best = self.choices(op, size, group)[0].algorithm
            if not found or found[-1][1] != best:
                found.append((size, best))
        return tuple(found)

    def _unknown(self, op: Op, group: CommGroup, algorithm: str | None) -> str:
        what = f"{op} with {algorithm}" if algorithm else op
        known = sorted({f"{level} of {ranks}" for source in self.sources for _, level, ranks, _ in source.curves})
        held = f"measured: {', '.join(known)}" if known else "nothing was measured"
        return (
            f"the time of {what} on {_describe_group(group)} is unknown ({held}): run lostflops calibrate on "
            f"{'one host' if group.hosts == 1 else 'two hosts or more'}, or describe the machine with --topology"
        )


def _fastest_first(times: Iterable[CollectiveTime | None]) -> tuple[CollectiveTime, ...]:
    known = {time.algorithm: time for time in times if time is not None}
    return tuple(sorted(known.values(), key=lambda time: time.ns))


def _model_nccl_time(
    op: Op, size: int, group: CommGroup, algorithm: str | None, topology: NetworkTopology
) -> CollectiveTime | None:
    if algorithm == "hierarchical" and group.level == "world":
        parts = [nccl_times(part.op, part.size, part.group, topology)[0] for part in hierarchical(op, size, group)]
        return CollectiveTime(
            ns=sum(part.ns for part in parts),
            low=sum(part.low for part in parts),
            high=sum(part.high for part in parts),
            algorithm="hierarchical",
            source=f"NCCL's model for {topology.name} (inside hosts, then across hosts), not measured",
        )
    times = nccl_times(op, size, group, topology)
    wanted = None if algorithm == "hierarchical" else algorithm
    return next((time for time in times if wanted in {None, time.algorithm}), None)


def _describe_group(group: CommGroup) -> str:
    return f"{group.ranks} ranks on {group.hosts} host{'s' if group.hosts > 1 else ''}"


def _distance(key: Key, op: Op, group: CommGroup) -> tuple[bool, float, float]:
    """Return a sort key: groups with as many ranks in a host first, then the nearest in ranks, then in hosts."""
    _, _, ranks, hosts = key
    if op == "send_recv":
        return (False, ranks, hosts)
    other = CommGroup(ranks, hosts)
    same = group.level != "world" or other.per_host == group.per_host
    return (not same, abs(math.log2(group.ranks / ranks)), abs(math.log2(group.hosts / hosts)))


def _adapters(group: CommGroup, other: CommGroup) -> float:
    """Return by what factor the network adapters of two groups may differ: a group has as many as ranks in a host, or
    one."""
    ratio = group.per_host / other.per_host
    return max(ratio, 1 / ratio) if group.level == "world" else 1.0


def _read_curve(curve: Curve, size: int, factor: float = 1.0, scale: float = 1.0) -> _TableMatch:
    """Return `factor` times the curve at `scale` times the size."""
    ns, low, high, reach = curve.interval(max(round(size * scale), 1))
    return _TableMatch(factor * ns, factor * low, factor * high, reach)


def _extrapolate_curve(curve: Curve, size: int, factor: float, scale: float) -> _TableMatch:
    """Return the curve scaled to another group. Launching is done once, whatever the number of steps; the interval
    includes the case that all latency is of that kind."""
    found, once = _read_curve(curve, size, factor, scale), _read_curve(curve, size, 1.0, factor * scale)
    return _TableMatch(found.ns, min(found.low, once.low), max(found.high, once.high), found.reach)


def _errors(backend: str, curves: Mapping[Key, Curve]) -> dict[tuple[str, str], float]:
    """Return the relative error of a carried-over curve per doubling of ranks, from pairs of groups that were both
    measured."""
    found: dict[tuple[str, str], float] = {}
    for one, other in permutations(curves, 2):
        op, level, ranks, _ = one
        if other[:2] != (op, level) or op == "send_recv" or ranks in {1, other[2]} or other[2] == 1:
            continue
        curve = curves[other]
        ways = [
            derive_scale_factors(measured_form(backend, op, name), ranks, FORMS[op, name], other[2])
            for name in algorithms_of(backend, op)
        ]
        for size in (*curve.sizes, round(math.sqrt(math.prod(curve.sizes)))):
            ns, truth = min(_read_curve(curves[one], size, *way).ns for way in ways), curve.at(size)
            if ns > 0 and truth > 0:
                doublings = max(abs(math.log2(other[2] / ranks)), 1)
                error = math.exp(abs(math.log(ns / truth)) / doublings) - 1
                found[op, level] = max(found.get((op, level), ERROR_PER_DOUBLING), error)
    return found
