"""Links that collectives share: those of a group that threads of a host run, several of which can move data at once.

Recorded durations of overlapping collectives include each other. Each gets the time that it would have taken alone if
all at the same time had shared their link by size; after that they take turns in the order in which they were ready.
Gradient reductions are waited for together: the last of them ends as recorded. In other groups, the time by which a
later call delayed an earlier one is not link time: the members of the earlier call leave that much later. If a later
call often ends before an earlier one in such a group, its calls do not take turns and keep their measured times.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.predict.graph.tasks import NONE, LaneKind, Ns, TaskGraph
from lostflops.predict.graph.threads.waits import LATE_USE

MESSAGE: Final = 65_536
"""Bytes that the latency of a message counts as when several share a link: 50 us at 1.3 GB/s."""
OUT_OF_TURN: Final = 0.2
"""A group takes no turns if more than this part of its overlapping neighbours end in another order than they were
ready."""


def assign_links(graph: TaskGraph) -> TaskGraph:
    """Return the graph with links, and with the transfer time of each collective alone on its link; sends and receives
    have links of their own."""
    tasks, meetings = graph.tasks, graph.meetings
    rows = np.flatnonzero((tasks.meeting >= 0) & (graph.lanes.kind[tasks.lane] == LaneKind.COMM_THREAD))
    ready = np.zeros(len(meetings), np.int64)
    np.maximum.at(ready, tasks.meeting[rows], graph.measured.start[rows])
    chosen = np.zeros(len(meetings), np.bool_)
    chosen[tasks.meeting[rows]] = True
    chosen &= ~np.isin(meetings.op, [graph.word("send"), graph.word("recv")])
    late = [graph.word(op) for op in LATE_USE]
    link, transfer, beyond = meetings.link.copy(), meetings.transfer.copy(), np.zeros(len(meetings), np.int64)
    for group in np.unique(meetings.group[chosen]).tolist():
        own = np.flatnonzero(chosen & (meetings.group == group))
        own = own[np.argsort(ready[own], kind="stable")]
        stop, weight = ready[own] + transfer[own], weigh(meetings.size[own])
        together = bool(np.isin(meetings.op[own], late).all())
        if together or _in_turn(ready[own], stop):
            link[own] = link.max(initial=NONE) + 1
            if together:
                transfer[own] = np.round(shares(ready[own], stop, weight)).astype(np.int64)
            else:
                transfer[own], beyond[own] = _turns(ready[own], stop, weight)
    duration = tasks.duration.copy()
    duration[rows] += beyond[tasks.meeting[rows]]
    return replace(
        graph,
        tasks=tasks._replace(duration=duration),
        meetings=replace(meetings, link=link, transfer=transfer),
    )


def _in_turn(ready: Ns, stop: Ns) -> bool:
    """Return whether collectives that overlap mostly end in order."""
    beside = ready[1:] < stop[:-1]
    return not beside.any() or float((stop[1:] < stop[:-1])[beside].mean()) <= OUT_OF_TURN


def _turns(ready: Ns, stop: Ns, weight: Ns) -> tuple[list[int], list[int]]:
    """Return how long each uses its link when its turn comes, and how much later than that it was recorded to end.

    >>> _turns(np.array([0, 10]), np.array([20, 20]), np.array([1, 1]))
    ([15, 5], [5, 0])
    """
    took, beyond, free = [], [], 0
    alone = np.round(shares(ready, stop, weight)).astype(np.int64)
    for begin, end, own in zip(ready.tolist(), stop.tolist(), alone.tolist(), strict=True):
        turn = max(begin, free)
        took.append(min(own, max(end - turn, 0)))
        free = turn + took[-1]
        beyond.append(max(end - free, 0))
    return took, beyond


def weigh(size: Ns) -> Ns:
    """Return what part of a shared link each message gets: by size, or evenly if any size is unknown (0 or less).

    >>> weigh(np.array([0, 10])).tolist(), weigh(np.array([1, 10])).tolist()
    ([1, 1], [65537, 65546])
    """
    return size + MESSAGE if (size > 0).all() else np.ones_like(size)


def shares(ready: Ns, stop: Ns, weight: Ns) -> npt.NDArray[np.float64]:
    """Return how long each would have taken alone, if all that moved data at once shared their link by these weights.

    >>> shares(np.array([0, 10]), np.array([20, 20]), np.array([1, 1])).tolist()
    [15.0, 5.0]
    >>> shares(np.array([0, 10]), np.array([20, 20]), np.array([9, 1])).tolist()
    [19.0, 1.0]
    """
    edges = np.unique(np.concatenate((ready, stop)))
    begun, ended = (_until(edges, times, weight) for times in (ready, stop))
    moving = (begun - ended)[:-1]
    own = np.concatenate(([0.0], np.cumsum(np.where(moving, np.diff(edges) / np.maximum(moving, 1), 0.0))))
    alone: npt.NDArray[np.float64] = weight * (own[np.searchsorted(edges, stop)] - own[np.searchsorted(edges, ready)])
    return alone


def _until(edges: Ns, times: Ns, weight: Ns) -> Ns:
    """Return the total weight of all whose time has come by each edge."""
    order = np.argsort(times, kind="stable")
    come = np.concatenate(([0], np.cumsum(weight[order])))
    found: Ns = come[np.searchsorted(times[order], edges, "right")]
    return found
