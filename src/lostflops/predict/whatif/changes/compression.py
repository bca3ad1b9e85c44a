"""What if gradients were compressed before being reduced?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.core.errors import UsageError
from lostflops.predict.graph.editing import retime_graph
from lostflops.predict.graph.tasks import Because, LaneKind
from lostflops.predict.whatif.change import Change, Edited, Facts
from lostflops.predict.whatif.graph_edits.moving import memory_rate
from lostflops.predict.whatif.graph_edits.reductions import calls, members, reductions, select_sized_collectives
from lostflops.predict.whatif.graph_edits.transfers import TimedTransfers
from lostflops.predict.whatif.graph_edits.values import times

if TYPE_CHECKING:
    from lostflops.predict.costs.times import CollectiveTime, CommGroup, CommTimes, Op
    from lostflops.predict.graph.tasks import TaskGraph

_HALF: Final = ("fp16", "bf16")


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    share = 0.5 if value in _HALF else times(value, "compression")
    if share >= 1:
        raise UsageError(f"compression={value}: give the fraction of the bytes that is left, below 1x, such as 0.5x")
    chosen = select_sized_collectives(graph, reductions(graph))
    transfers = TimedTransfers.of(graph, facts)
    rows, kinds, which = calls(graph, chosen)
    ratio = np.array(
        [transfers.ns(k.op, round(k.size * share), k.ranks, k.hosts) / max(transfers.ns(*k), 1e-9) for k in kinds]
    )
    transfer = graph.meetings.transfer.copy()
    transfer[rows] = np.round(transfer[rows] * ratio[which])
    rate, said = memory_rate(graph, facts)
    cast = np.zeros(len(graph.meetings))
    cast[rows] = graph.meetings.size[rows] * (1 + share) / rate
    own = members(graph, chosen)
    duration = graph.tasks.duration.copy()
    each = np.round(cast[graph.tasks.meeting[own]]).astype(np.int64)
    duration[own] += each
    edges = graph.edges
    place = np.full(len(graph.tasks), -1)
    place[own] = np.arange(own.size)
    enqueues = (edges.because == Because.THREAD) & (place[edges.dst] >= 0)
    np.add.at(duration, edges.src[enqueues], each[place[edges.dst[enqueues]]])
    stream = graph.lanes.kind[graph.tasks.lane[own]] == LaneKind.STREAM
    duration[own[stream]] += each[stream]
    notes = (
        transfers.note,
        f"Casting before and after runs at {said}, which is assumed, not measured.",
        "Gradients are assumed to be fp32."
        if value in _HALF
        else "The cost of choosing what to send (as top-k does) is not included.",
    )
    if facts.times is not None:
        alike = frozenset((k.op, k.ranks, k.hosts) for k in kinds)
        facts = replace(facts, times=_Smaller(facts.times, share, alike))
    changed = retime_graph(graph, duration=duration, transfer=transfer)
    return Edited(graph=changed, doubt=min(1.0, 0.2 + transfers.doubt), notes=notes, facts=facts)


@dataclass(frozen=True, slots=True)
class _Smaller:
    """The times of `told`, with collectives of these operations, ranks and hosts compressed."""

    told: CommTimes
    share: float
    """Part of the bytes that is left."""
    alike: frozenset[tuple[str, int, int]]
    """Operations, ranks and hosts of the compressed collectives."""

    def time(self, op: Op, size: int, group: CommGroup, algorithm: str | None = None) -> CollectiveTime:
        sent = max(round(size * self.share), 1) if (op, group.ranks, group.hosts) in self.alike else size
        return self.told.time(op, sent, group, algorithm)


def _how(value: str) -> str:
    if value in _HALF:
        hooks = "torch.distributed.algorithms.ddp_comm_hooks.default_hooks"
        other = " (DDP refuses it on gloo: use fp16_compress_hook there)" if value == "bf16" else ""
        return f"model.register_comm_hook(None, {hooks}.{value}_compress_hook){other}"
    return "model.register_comm_hook(state, hook) with a hook that sends that much less, such as powerSGD_hook"


CHANGE: Final = Change(
    name="compression",
    form="compression=0.5x",
    about="gradient reductions move this fraction of their bytes (fp16 and bf16: "
    "half of fp32), plus the cost of casting",
    cost="gradients lose precision: watch the loss; fp16 may overflow",
    how=_how,
    apply=_apply,
    tried=("bf16",),
)
