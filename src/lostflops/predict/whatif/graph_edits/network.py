"""Transfers on another network: the part that depends on bytes and the latency, each multiplied by a factor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.core.errors import NotApplicable
from lostflops.core.units import pluralise
from lostflops.predict.costs.times import OPS
from lostflops.predict.graph.editing import retime_graph
from lostflops.predict.graph.tasks import Flags
from lostflops.predict.whatif.change import Edited, Facts
from lostflops.predict.whatif.graph_edits.reductions import select_collectives
from lostflops.predict.whatif.graph_edits.selecting import POINT_TO_POINT
from lostflops.predict.whatif.graph_edits.transfers import Floats, Latencies, TimedTransfers, deviation, latencies

if TYPE_CHECKING:
    from lostflops.predict.costs.times import CollectiveTime, CommGroup, CommTimes, Op
    from lostflops.predict.graph.tasks import TaskGraph

_KNOWN: Final = (*OPS, *POINT_TO_POINT)

_UNKNOWN: Final = 0.5
"""If the possible latency spans more than this part of all transfers, only the smallest possible latency counts."""


def faster(
    graph: TaskGraph, facts: Facts, *, bandwidth: float = 1.0, latency: float = 1.0, inside: bool = False
) -> Edited:
    """Re-time transfers for another network; `bandwidth` and `latency` are factors. If the run has groups that span
    hosts, only these are on the network; else every transfer is. With `inside`, transfers within a host change instead,
    and the times of collectives that a later change asks for do not."""
    chosen = _inside_hosts(graph) if inside else _on_network(graph)
    told = chosen & _is_known(graph)
    if not told.any():
        raise NotApplicable("collectives were recorded without operation or size: record with lostflops run")
    transfers = TimedTransfers.of(graph, facts)
    shares = latencies(graph, told, transfers)
    weight = np.where(told, graph.meetings.transfer, 0).astype(np.float64)
    least = float(((shares.high - shares.low) * weight).sum()) > _UNKNOWN * float(weight.sum())
    if least:
        shares = Latencies(shares.low, shares.low, shares.high)
    if latency != 1.0 and not shares.share.any():
        raise NotApplicable(
            "all collectives of the run are about the same size, or vary too much, so the latency is unknown: "
            "give --calibration FILE (made by lostflops calibrate)"
        )
    factor = np.where(told, _factor(shares.share, bandwidth, latency), 1.0)
    ends = [_factor(end, bandwidth, latency) - 1 for end in (shares.low, shares.high)]
    doubt = deviation(np.where(told, factor - 1, 0), (ends[0], ends[1]), weight)
    changed = retime_graph(graph, transfer=np.round(graph.meetings.transfer * factor))
    notes = tuple(_notes(graph, chosen, told, shares, transfers))
    if facts.times is not None and not inside:
        across = bool((graph.meetings.hosts > 1).any())
        facts = replace(facts, times=_Faster(facts.times, bandwidth, latency, across, least))
    return Edited(graph=changed, doubt=max(doubt, 0.05), notes=notes, facts=facts)


@dataclass(frozen=True, slots=True)
class _Faster:
    """The times of `told` on the other network."""

    told: CommTimes
    bandwidth: float
    latency: float
    across: bool
    """Whether only groups that span hosts change."""
    least: bool
    """Whether to use the smallest possible latency."""

    def time(self, op: Op, size: int, group: CommGroup, algorithm: str | None = None) -> CollectiveTime:
        found, one, two = (self.told.time(op, each, group, algorithm) for each in (size, 1, 2))
        if self.across and group.hosts == 1:
            return found
        first = (one.low if self.least else one.ns) - (two.ns - one.ns)
        share = np.clip(np.array([first / max(found.ns, 1e-9)]), 0.0, 1.0)
        factor = float(_factor(share, self.bandwidth, self.latency)[0])
        return replace(found, ns=found.ns * factor, low=found.low * factor, high=found.high * factor)


def _factor(share: Floats, bandwidth: float, latency: float) -> Floats:
    factor: Floats = share * latency + (1 - share) / bandwidth
    return factor


def _on_network(graph: TaskGraph) -> Flags:
    told = graph.meetings
    if not len(told):
        raise NotApplicable("no collective was recorded in whole steps")
    across = told.hosts > 1
    chosen: Flags = across if across.any() else told.ranks != 1
    return chosen


def _is_known(graph: TaskGraph) -> Flags:
    """Select transfers of a known operation and size."""
    known: Flags = (graph.meetings.size > 0) & select_collectives(graph, *_KNOWN)
    return known


def share_of_unknown(graph: TaskGraph) -> float:
    """Return the part of the time of all transfers that may be within a host and cannot be timed on other links,
    because their operation or size is not known."""
    weight = graph.meetings.transfer.astype(np.float64)
    unknown = (graph.meetings.hosts <= 1) & (graph.meetings.ranks != 1) & ~_is_known(graph)
    return float(weight[unknown].sum() / weight.sum()) if weight.any() else 0.0


def _inside_hosts(graph: TaskGraph) -> Flags:
    chosen: Flags = (graph.meetings.hosts == 1) & (graph.meetings.ranks != 1)
    return chosen


def _notes(graph: TaskGraph, chosen: Flags, told: Flags, shares: Latencies, transfers: TimedTransfers) -> Iterator[str]:
    across = bool((graph.meetings.hosts > 1).any())
    yield (
        "Only transfers between hosts change." if across else "No group spans hosts: every transfer counts as network."
    )
    whole = max(int(graph.meetings.transfer[told].sum()), 1)
    share = float((shares.share * graph.meetings.transfer)[told].sum()) / whole
    yield f"Latency is {share:.0%} of these transfers ({', '.join(sorted(transfers.sources))})."
    if left := int((chosen & ~told).sum()):
        yield f"{pluralise(left, 'transfer')} without a known operation and size: kept as measured."
