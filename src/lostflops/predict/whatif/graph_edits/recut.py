"""Reductions of a round, replaced by others that end at other bytes of its gradients.

A new reduction waits for what recorded ones waited for, on each lane at the place where its last gradient is ready. A
task that waited for a recorded reduction waits for all new ones that hold some of its bytes. Enqueuing a reduction
costs the host as much time as recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lostflops.predict.graph.editing import drop_tasks, in_order, insert_tasks, retime_graph, with_edges, with_meetings
from lostflops.predict.graph.tasks import NONE, Because, Flags, TaskGraph, TaskKind, TaskMeetings
from lostflops.predict.whatif.graph_edits.ready import HoldingTasks, Inputs, between
from lostflops.predict.whatif.graph_edits.reductions import Round, calls
from lostflops.predict.whatif.graph_edits.transfers import TimedTransfers

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Plan:
    """A round of reductions and where its buckets end, in bytes from the first gradient on."""

    round: Round
    old: Rows
    """Ends of the recorded buckets."""
    new: Rows
    """Ends of the new buckets."""
    known: bool
    """Whether the new buckets end between parameters."""

    @property
    def same(self) -> bool:
        return bool(np.array_equal(self.old, self.new))

    @property
    def places(self) -> npt.NDArray[np.float64]:
        """Ends of the new buckets, counted in recorded ones: 1.5 is the middle of the second."""
        ends = np.concatenate(([0], self.old))
        return np.interp(self.new, ends, np.arange(ends.size))

    @property
    def inside(self) -> Rows:
        """Recorded bucket in which each new bucket ends."""
        return np.minimum(np.searchsorted(self.old, self.new), self.old.size - 1)

    @property
    def shared_buckets(self) -> tuple[Rows, Rows]:
        """Pairs of new and recorded buckets that have bytes in common."""
        begins = np.concatenate(([0], self.new[:-1]))
        before = np.concatenate(([0], self.old[:-1]))
        new, old = np.nonzero((begins[:, None] < self.old) & (before < self.new[:, None]))
        return new, old


class _Edges:
    """Edges to add: ends of 0 or more are recorded tasks, negative ends are new tasks (-1 is the first new one)."""

    def __init__(self) -> None:
        self.src: list[int] = []
        self.dst: list[int] = []
        self.delay: list[int] = []
        self.early: list[bool] = []
        self.because: list[int] = []

    def add(self, src: int, dst: int, delay: int, *, early: bool, because: int) -> None:
        self.src.append(src)
        self.dst.append(dst)
        self.delay.append(delay)
        self.early.append(early)
        self.because.append(because)

    def extend(self, src: Rows, dst: Rows, delay: Rows, early: Flags, because: int) -> None:
        """Add several edges for the same reason."""
        self.src += src.tolist()
        self.dst += dst.tolist()
        self.delay += delay.tolist()
        self.early += early.tolist()
        self.because += [because] * src.size


class _Users:
    """Edges out of tasks, as lists: each is read by itself."""

    def __init__(self, graph: TaskGraph) -> None:
        told = graph.edges
        order = np.argsort(told.src, kind="stable")
        self._first = np.searchsorted(told.src[order], np.arange(len(graph.tasks) + 1))
        dst = told.dst[order]
        columns = (dst, graph.tasks.lane[dst], told.delay[order], told.after_start[order], told.because[order])
        self._edges = list(zip(*(column.tolist() for column in columns), strict=True))

    def of(self, task: int) -> list[tuple[int, int, int, bool, int]]:
        """Return the edges out of a task: where to, on which lane, delay, whether after the start, and why."""
        return self._edges[self._first[task] : self._first[task + 1]]


def recut(graph: TaskGraph, plans: Sequence[Plan], transfers: TimedTransfers) -> TaskGraph:
    inputs, users, edges = Inputs(graph), _Users(graph), _Edges()
    after: list[int] = []
    like: list[int] = []
    meeting: list[int] = []
    took: list[int] = []
    duration, count = graph.tasks.duration.copy(), len(graph.meetings)
    enqueuing = _enqueuing(graph)
    for plan in plans:
        for own in plan.round.tasks:
            base = len(like)
            copied = _lanes(graph, plan, own)
            like += copied.tolist()
            after += _behind(graph, plan, own, copied)
            meeting += range(count, count + plan.new.size)
            took += _shared_out(int(graph.tasks.duration[own].sum()), plan.new)
            needs: dict[tuple[int, int], int] = {}
            for held in inputs.of(own):
                needs |= {(held.lane, new): src for new, src in enumerate(_hold(graph, plan, held, base, edges))}
                calling = np.unique(held.src[enqueuing[held.src]])
                duration[calling] = np.round(duration[calling] * (plan.new.size / plan.old.size))
            for new, old in zip(*(each.tolist() for each in plan.shared_buckets), strict=True):
                for user, lane, delay, early, because in users.of(own[old]):
                    # Who went on before the last of these gradients was ready did not wait for it.
                    if user > needs.get((lane, new), NONE):
                        edges.add(-1 - base - new, user, delay, early=early, because=because)
        count += plan.new.size
    rows = np.array(like, np.int64)
    tasks = graph.tasks.take(rows)._replace(
        meeting=np.array(meeting, np.int32),
        duration=np.array(took, np.int64),
        event=np.full(rows.size, NONE, np.int64),
    )
    old = np.concatenate([plan.round.tasks.ravel() for plan in plans])
    changed, key = _with_meetings(retime_graph(graph, duration=duration), plans, transfers)
    changed, fresh, moved = insert_tasks(changed, tasks, np.array(after, np.int64))
    changed = _with_edges(changed, edges, fresh, moved)
    # A task without a step may attend an old meeting too, which then stays.
    return drop_tasks(in_order(changed, key), moved[old])


def _shared_out(ns: int, ends: Rows) -> list[int]:
    """Split by bytes the time that a rank's reductions took in addition to their transfers.

    >>> _shared_out(10, np.array([3, 10]))
    [3, 7]
    """
    shares: list[int] = np.diff(np.round(ns * (ends / ends[-1])).astype(np.int64), prepend=0).tolist()
    return shares


def _enqueuing(graph: TaskGraph) -> Flags:
    """Select host tasks that only enqueue: calls that launch, and ops of collectives."""
    named = np.array([word.startswith(("c10d::", "record_param_comms")) for word in graph.words])
    found: Flags = (graph.tasks.kind == TaskKind.LAUNCH) | (
        (graph.tasks.kind == TaskKind.HOST) & named[graph.tasks.name]
    )
    return found


def _hold(graph: TaskGraph, plan: Plan, held: HoldingTasks, base: int, edges: _Edges) -> list[int]:
    """Add the edges from one lane into new reductions, and return the tasks that they come from. An edge is as recorded
    if the new bucket ends where a recorded one does; elsewhere it has the shortest delay, which does not include when
    within a host task the reduction was enqueued."""
    told = graph.edges
    sources, recorded = between(graph, held, plan.round.step, plan.places)
    least = int(told.delay[held.edges].min())
    because = int(told.because[held.edges[0]])
    is_recorded, edge = recorded >= 0, held.edges[recorded]
    delay = np.where(is_recorded, told.delay[edge], least)
    early = np.where(is_recorded, told.after_start[edge], because == Because.LAUNCH)
    edges.extend(sources, -1 - base - np.arange(sources.size), delay, early, because)
    found: list[int] = sources.tolist()
    return found


def _lanes(graph: TaskGraph, plan: Plan, own: Rows) -> Rows:
    """Return for each new reduction a recorded one to copy; the lanes take turns."""
    last = dict(zip(graph.tasks.lane[own].tolist(), own.tolist(), strict=True))
    return np.array(list(last.values()), np.int64)[np.arange(plan.new.size) % len(last)]


def _behind(graph: TaskGraph, plan: Plan, own: Rows, copied: Rows) -> list[int]:
    """Return the task after which each new reduction comes on its lane: the last recorded reduction that ends no
    later."""
    lanes, wanted = graph.tasks.lane[own], graph.tasks.lane[copied]
    found = np.empty(copied.size, np.int64)
    for lane in dict.fromkeys(lanes.tolist()):
        same, rows = np.flatnonzero(lanes == lane), np.flatnonzero(wanted == lane)
        first = int(own[same[0]])
        before = first - 1 if first and graph.tasks.lane[first - 1] == lane else NONE
        ended = np.searchsorted(plan.old[same], plan.new[rows], "right")
        found[rows] = np.concatenate(([before], own[same]))[ended]
    behind: list[int] = found.tolist()
    return behind


def _with_meetings(
    graph: TaskGraph, plans: Sequence[Plan], transfers: TimedTransfers
) -> tuple[TaskGraph, npt.NDArray[np.float64]]:
    """Add the new meetings, and return a sort key of all meetings that puts each new one next to the recorded one in
    which it ends."""
    key: list[npt.NDArray[np.float64]] = [np.arange(len(graph.meetings), dtype=np.float64)]
    more: list[TaskMeetings] = []
    for plan in plans:
        chosen = np.zeros(len(graph.meetings), np.bool_)
        chosen[plan.round.meetings] = True
        _, kinds, which = calls(graph, chosen)
        known = np.array([transfers.ns(*kind) for kind in kinds])[which]
        level = float(graph.meetings.transfer[plan.round.meetings].sum()) / max(float(known.sum()), 1.0)
        sizes = np.diff(plan.new, prepend=0)
        kind = kinds[0]
        told = [transfers.ns(kind.op, size, kind.ranks, kind.hosts) for size in sizes.tolist()]
        rows = plan.round.meetings[plan.inside]
        more.append(
            _resize_meetings(graph.meetings.take(rows), sizes, np.round(np.array(told) * level).astype(np.int64))
        )
        key.append(rows.astype(np.float64) + 0.5)
    for each in more:
        graph, _ = with_meetings(graph, each)
    return graph, np.concatenate(key)


def _resize_meetings(meetings: TaskMeetings, sizes: Rows, transfer: Rows) -> TaskMeetings:
    told = meetings
    return TaskMeetings(transfer, sizes, told.op, told.group, told.ranks, told.hosts, told.link, told.whole)


def _with_edges(
    graph: TaskGraph, edges: _Edges, fresh: npt.NDArray[np.int32], moved: npt.NDArray[np.int32]
) -> TaskGraph:
    src, dst, delay = (np.array(column, np.int64) for column in (edges.src, edges.dst, edges.delay))

    def places(ends: Rows) -> Rows:
        placed: Rows = np.where(ends >= 0, moved[np.maximum(ends, 0)], fresh[np.maximum(-1 - ends, 0)]).astype(np.int64)
        return placed

    early, because = np.array(edges.early, np.bool_), np.array(edges.because, np.int8)
    return with_edges(graph, places(src), places(dst), delay, after_start=early, because=because)
