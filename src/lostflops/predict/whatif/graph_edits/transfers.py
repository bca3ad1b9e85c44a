"""Times of a run's transfers at another size, in another group or by another operation.

Changes use the ratio of two answers from one source, so that the level is the run's own. The source is `Facts.times`,
or the curve through the transfers of the graph itself if that has no answer. If all of these are of about one size,
latency cannot be separated from bandwidth: small ones then count mostly as latency, others as bandwidth, and the
interval includes the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import inf

import numpy as np
import numpy.typing as npt

from lostflops.core.errors import NotApplicable, UnknownCost
from lostflops.predict.costs.collective_times import CollectiveTimes
from lostflops.predict.costs.times import OPS, CollectiveTime, CommGroup, CommTimes
from lostflops.predict.graph.editing import retime_graph
from lostflops.predict.graph.replay import Schedule, replay
from lostflops.predict.graph.tasks import Flags, TaskGraph
from lostflops.predict.scaling.own_times import Key, OwnTimes, Samples
from lostflops.predict.whatif.change import Facts
from lostflops.predict.whatif.graph_edits.reductions import ReductionCall, calls
from lostflops.predict.whatif.graph_edits.selecting import POINT_TO_POINT

Floats = npt.NDArray[np.float64]
Like = tuple[str, int, int]
"""Operation, ranks and hosts of a call."""
_FEWEST_ALIKE = 3


@dataclass
class TimedTransfers:
    """Answers how long transfers take, and remembers which sources the answers come from; each question is asked
    once."""

    told: CommTimes | None
    own: CommTimes
    sources: set[str] = field(default_factory=set)
    doubts: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, graph: TaskGraph, facts: Facts) -> TimedTransfers:
        return cls(facts.times, CollectiveTimes.of(learned=OwnTimes(facts.backend, samples(graph))))

    def __post_init__(self) -> None:
        self.time: Callable[[str, int, int, int], CollectiveTime] = cache(self._time)

    def _time(self, op: str, size: int, ranks: int, hosts: int) -> CollectiveTime:
        name = "send_recv" if op in POINT_TO_POINT else op
        if name not in OPS:
            raise NotApplicable(f"the time of {op or 'an unnamed collective'} at another size is unknown")
        group = CommGroup(ranks, hosts)
        for times in (self.told, self.own):
            if times is not None:
                try:
                    found = times.time(name, max(size, 1), group)
                except UnknownCost:
                    continue
                self.sources.add(found.source)
                if found.ns > 0:
                    self.doubts.append((found.high - found.low) / 2 / found.ns)
                return found
        raise NotApplicable(
            f"the time of {name} on {ranks} ranks is unknown: its size was not recorded, or no such collective was. "
            "Give --calibration FILE (made by lostflops calibrate)"
        )

    def ns(self, op: str, size: int, ranks: int, hosts: int) -> float:
        return self.time(op, size, ranks, hosts).ns

    @property
    def doubt(self) -> float:
        """Part by which a change made with these answers may be wrong: the median of half their intervals."""
        return float(min(1.0, np.median(self.doubts))) if self.doubts else 0.0

    @property
    def note(self) -> str:
        return f"Transfer times at other sizes: {', '.join(sorted(self.sources))}; scaled to the run's own times."


def samples(graph: TaskGraph, among: Flags | None = None) -> dict[Key, Samples]:
    """Return transfers whose members were all recorded, by operation, level, ranks, hosts and size; of all meetings, or
    only of those in `among`."""
    found: dict[Key, Samples] = {}
    told = graph.meetings
    known = told.whole & (told.size > 0) & (told.transfer > 0)
    rows, different, which = calls(graph, known if among is None else known & among)
    for number, call in enumerate(different):
        op = "send_recv" if call.op in POINT_TO_POINT else call.op
        if op in OPS and call.ranks > 1:
            level = CommGroup(call.ranks, call.hosts).level
            own = found.setdefault((op, level, call.ranks, call.hosts), {})
            own[call.size] = told.transfer[rows[which == number]].astype(np.float64).tolist()
    return found


@dataclass(frozen=True, slots=True)
class Latencies:
    """Part of each meeting's transfer that is latency; 0 for meetings that were not chosen."""

    share: Floats
    low: Floats
    """Smallest possible part."""
    high: Floats
    """Largest possible part."""


def latencies(graph: TaskGraph, chosen: Flags, transfers: TimedTransfers) -> Latencies:
    """Compute the time of a transfer of no bytes divided by that of its own size, from the same source. No latency is
    longer than the typical call of the quickest size."""
    columns = np.zeros((3, len(graph.meetings)))
    rows, different, which = calls(graph, chosen)
    shares = np.zeros((3, len(different)))
    quickest = _quickest(different, [graph.meetings.transfer[rows[which == at]] for at in range(len(different))])
    for number, call in enumerate(different):
        whole = transfers.time(*call).ns
        one, two = (transfers.time(call.op, size, call.ranks, call.hosts) for size in (1, 2))
        byte = two.ns - one.ns
        most = min(1.0, quickest.get((call.op, call.ranks, call.hosts), inf) / max(whole, 1e-9))
        shares[:, number] = np.minimum((np.array((one.ns, one.low, one.high)) - byte) / max(whole, 1e-9), most)
    columns[:, rows] = np.clip(np.round(shares, 9), 0.0, 1.0)[:, which]
    return Latencies(*columns)


def _quickest(different: Sequence[ReductionCall], transfers: Sequence[npt.NDArray[np.int64]]) -> dict[Like, float]:
    """Return the median time of the quickest size, by operation and group; sizes that were seen once or twice, or took
    no time, do not count."""
    found: dict[Like, float] = {}
    for call, took in zip(different, transfers, strict=True):
        key = call.op, call.ranks, call.hosts
        if np.count_nonzero(took > 0) >= _FEWEST_ALIKE:
            found[key] = min(found.get(key, inf), float(np.median(took[took > 0])))
    return found


def apart(done: Schedule, *factors: Floats) -> float:
    """Return by how many ns the mean step differs at most if all transfers are scaled by one of these factors."""
    graph, told, nominal = done.graph, done.graph.meetings.transfer, done.mean_step
    ends = (replay(retime_graph(graph, transfer=np.round(told * np.maximum(factor, 0)))) for factor in factors)
    return max(abs(end.mean_step - nominal) for end in ends)


def deviation(nominal: Floats, ends: tuple[Floats, Floats], weight: Floats) -> float:
    """Return the part of itself by which a sum of changes may be wrong, given what it would be at both ends."""
    whole = float((nominal * weight).sum())
    if whole == 0:
        return 1.0
    return min(1.0, max(abs(float((end * weight).sum()) / whole - 1) for end in ends))
