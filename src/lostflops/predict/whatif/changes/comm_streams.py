"""What if gradient reductions ran on several streams, each with its own communicator?

They still share the links: only one transfer at a time moves bytes over a link, so only latency overlaps with the next
transfer's bytes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.editing import rearrange_tasks, retime_graph, with_edges, with_lanes
from lostflops.predict.graph.tasks import NONE
from lostflops.predict.whatif.change import Change, Edited, Facts
from lostflops.predict.whatif.graph_edits.reductions import reductions, rounds, select_sized_collectives
from lostflops.predict.whatif.graph_edits.transfers import TimedTransfers, deviation, latencies
from lostflops.predict.whatif.graph_edits.values import count

if TYPE_CHECKING:
    import numpy.typing as npt

    from lostflops.predict.graph.tasks import LaneKind, TaskGraph
    from lostflops.predict.whatif.graph_edits.reductions import Round


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    streams = count(value, "comm_streams")
    chosen = select_sized_collectives(graph, reductions(graph))
    found = [one for one in rounds(graph, chosen) if one.meetings.size > 1]
    if not found:
        raise NotApplicable("a step has only one gradient reduction: there is nothing to overlap it with")
    transfers = TimedTransfers.of(graph, facts)
    shares = latencies(graph, chosen, transfers)
    if not shares.share.any():
        raise NotApplicable(
            "all reductions of the run are about the same size, so their latency is unknown, and more streams hide "
            "only latency: give --calibration FILE (made by lostflops calibrate)"
        )
    changed = _on_lanes(_await_earlier_reductions(_share_links(graph, chosen, shares.share), found), found, streams)
    weight = np.where(chosen, graph.meetings.transfer, 0).astype(np.float64)
    doubt = deviation(shares.share, (shares.low, shares.high), weight)
    notes = (
        f"Reductions alternate over {streams} streams per rank and share the link, so only latency overlaps.",
        transfers.note,
        "Concurrent collective kernels take more of the device away from compute, which is not modelled.",
    )
    return Edited(graph=changed, doubt=max(doubt, 0.3), notes=notes)


def _share_links(graph: TaskGraph, chosen: npt.NDArray[np.bool_], share: npt.NDArray[np.float64]) -> TaskGraph:
    """Let the bytes of a group take turns on its link; latency comes after, on each rank."""
    told = graph.meetings
    latency = np.round(told.transfer * np.where(chosen, share, 0)).astype(np.int64)
    free = int(told.link.max(initial=NONE)) + 1
    link = np.where(chosen & (told.link == NONE), free + told.group, told.link).astype(np.int32)
    own = graph.tasks.meeting
    more = np.where(own >= 0, latency[own], 0)
    changed = retime_graph(graph, duration=graph.tasks.duration + more, transfer=told.transfer - latency)
    return replace(changed, meetings=replace(changed.meetings, link=link))


def _await_earlier_reductions(graph: TaskGraph, found: list[Round]) -> TaskGraph:
    """Make every task that waits for one reduction of a round wait for all before it: they are no longer on one
    lane."""
    edges = graph.edges
    order = np.argsort(edges.src, kind="stable")
    first = np.searchsorted(edges.src[order], np.arange(len(graph.tasks) + 1))
    pairs: list[tuple[int, int]] = []
    for own in (tasks for one in found for tasks in one.tasks):
        users: set[int] = set()
        for task in own[::-1].tolist():
            pairs += [(task, user) for user in sorted(users)]
            users |= set(edges.dst[order[first[task] : first[task + 1]]].tolist())
    return with_edges(graph, *np.array(pairs, np.int64).reshape(-1, 2).T)


def _on_lanes(graph: TaskGraph, found: list[Round], streams: int) -> TaskGraph:
    """Spread reductions over the lanes in turn: the first stays on its lane, the next goes to the second."""
    lane = graph.tasks.lane.copy()
    lanes: dict[tuple[int, int], int] = {}
    for one in found:
        for own in one.tasks:
            home = int(graph.tasks.lane[own[0]])
            for place, task in enumerate(own.tolist()):
                turn = place % streams
                if turn and (home, turn) not in lanes:
                    kind: LaneKind = graph.lanes.kind[home]
                    rank = graph.lanes.rank[[home]]
                    graph, made = with_lanes(graph, rank, kind, f"{graph.words[graph.lanes.name[home]]} {turn + 1}")
                    lanes[home, turn] = int(made[0])
                lane[task] = lanes[home, turn] if turn else home
    return rearrange_tasks(graph, lane)


CHANGE: Final = Change(
    name="comm_streams",
    form="comm_streams=K",
    about="gradient reductions alternate over K streams and overlap each other",
    cost="more memory and channels; collectives on several communicators "
    "deadlock if ranks enqueue them in different order",
    how=lambda value: (
        f"groups = [dist.new_group() for _ in range({value})]; in a DDP communication hook, reduce bucket.index() on "
        f"groups[bucket.index() % {value}]; on NCCL set CUDA_DEVICE_MAX_CONNECTIONS above 1"
    ),
    apply=_apply,
    tried=("2",),
)
