"""Edits that make a new graph of another: other times, more or fewer edges, tasks inserted, removed or moved."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from lostflops.predict.graph.tasks import (
    NONE,
    Because,
    Edges,
    Index,
    LaneKind,
    Lanes,
    MeasuredTimes,
    Ns,
    TaskGraph,
    TaskMeetings,
    Tasks,
)

Rows = npt.NDArray[Any]
"""Indices or flags of rows."""


def retime_graph(
    graph: TaskGraph, *, duration: Ns | None = None, gap: Ns | None = None, transfer: Ns | None = None
) -> TaskGraph:
    """Return the graph with other times, each given as a whole column."""
    tasks, meetings = graph.tasks, graph.meetings
    if duration is not None or gap is not None:
        own = tasks.duration if duration is None else duration.astype(np.int64)
        tasks = tasks._replace(duration=own, gap=tasks.gap if gap is None else gap.astype(np.int64))
    if transfer is not None:
        meetings = replace(meetings, transfer=transfer.astype(np.int64))
    return replace(graph, tasks=tasks, meetings=meetings)


def scale_rows(values: Ns, rows: Rows, factor: float | npt.NDArray[np.float64]) -> Ns:
    """Return a copy of a column with some of its rows multiplied by a factor.

    >>> scale_rows(np.array([10, 20]), np.array([False, True]), 0.5).tolist()
    [10, 10]
    """
    result = values.copy()
    result[rows] = np.round(values[rows] * factor).astype(np.int64)
    return result


def skip_tasks(graph: TaskGraph, rows: Rows) -> TaskGraph:
    """Return the graph with these tasks taking no time and waiting for nothing. Tasks that wait for them still run
    after whatever comes before them on their lane. Their recorded gaps go as well. Members of a meeting still meet:
    retime the meeting, or leave it."""
    gone = np.zeros(len(graph.tasks), np.bool_)
    gone[rows] = True
    duration, gap = graph.tasks.duration.copy(), graph.tasks.gap.copy()
    duration[gone] = gap[gone] = 0
    alone = gone & (graph.tasks.meeting < 0)
    return without_edges(retime_graph(graph, duration=duration, gap=gap), alone[graph.edges.dst])


def without_edges(graph: TaskGraph, rows: Rows) -> TaskGraph:
    gone = np.zeros(len(graph.edges), np.bool_)
    gone[rows] = True
    return replace(graph, edges=graph.edges.take(~gone))


def with_edges(
    graph: TaskGraph,
    src: Rows,
    dst: Rows,
    delay: Rows | int = 0,
    *,
    after_start: Rows | bool = False,
    because: Rows | Because = Because.CHANGE,
) -> TaskGraph:
    own = graph.edges
    count = len(src)
    more = Edges(
        np.asarray(src, np.int32),
        np.asarray(dst, np.int32),
        np.broadcast_to(np.asarray(delay, np.int64), (count,)),
        np.broadcast_to(np.asarray(after_start, np.bool_), (count,)),
        np.broadcast_to(np.asarray(because, np.int8), (count,)),
    )
    columns = (np.concatenate((getattr(own, field.name), getattr(more, field.name))) for field in fields(Edges))
    return replace(graph, edges=Edges(*columns))


def with_words(graph: TaskGraph, *texts: str) -> tuple[TaskGraph, list[int]]:
    """Return the graph with these words, and their indices."""
    words = list(graph.words)
    words += [text for text in dict.fromkeys(texts) if text not in words]
    return replace(graph, words=tuple(words)), [words.index(text) for text in texts]


def with_lanes(graph: TaskGraph, ranks: Rows, kind: LaneKind, name: str) -> tuple[TaskGraph, Index]:
    """Return the graph with one more empty lane for each of these ranks, and the indices of the new lanes."""
    graph, (word,) = with_words(graph, name)
    old, count = graph.lanes, len(ranks)
    lanes = Lanes(
        np.concatenate((old.rank, np.asarray(ranks, np.int32))),
        np.concatenate((old.kind, np.full(count, kind, np.int8))),
        np.concatenate((old.name, np.full(count, word, np.int32))),
        np.concatenate((old.origin, np.zeros(count, np.int64))),
    )
    return replace(graph, lanes=lanes), np.arange(len(old), len(lanes), dtype=np.int32)


def with_meetings(graph: TaskGraph, more: TaskMeetings) -> tuple[TaskGraph, Index]:
    """Return the graph with these meetings after its own, and their indices; insert the tasks that attend them next."""
    own = graph.meetings
    columns = (np.concatenate((getattr(own, field.name), getattr(more, field.name))) for field in fields(TaskMeetings))
    return replace(graph, meetings=TaskMeetings(*columns)), np.arange(len(own), len(own) + len(more), dtype=np.int32)


def insert_tasks(graph: TaskGraph, tasks: Tasks, after: Rows) -> tuple[TaskGraph, Index, Index]:
    """Return the graph with more tasks, the indices of the new tasks, and the new index of every old task. Each new
    task comes right after the task `after` on the same lane, or first on its lane if `after` is NONE; several after the
    same task keep their order. The gap of the task before then comes before the new task. Give the new task gap 0 if
    the next one should follow it closely."""
    old, count = graph.tasks, len(graph.tasks)
    place = np.asarray(after, np.int64)
    begins = np.searchsorted(old.lane, tasks.lane, "left") - 1
    key = np.concatenate((np.arange(count) * 2, np.where(place >= 0, place, begins) * 2 + 1))
    order = np.lexsort((key, np.concatenate((old.lane, tasks.lane))))
    moved = np.empty(order.size, np.int32)
    moved[order] = np.arange(order.size, dtype=np.int32)
    columns = (np.concatenate((getattr(old, field.name), getattr(tasks, field.name)))[order] for field in fields(Tasks))
    never = np.full(len(tasks), NONE, np.int64)
    measured = (np.concatenate((times, never))[order] for times in (graph.measured.start, graph.measured.stop))
    edges, steps = graph.edges, graph.steps
    result = replace(
        graph,
        tasks=Tasks(*columns),
        edges=replace(edges, src=moved[edges.src], dst=moved[edges.dst]),
        steps=replace(steps, first=_map_indices(moved, steps.first), last=_map_indices(moved, steps.last)),
        measured=MeasuredTimes(*measured),
    )
    return result, moved[count:], moved[:count]


def drop_tasks(graph: TaskGraph, rows: Rows) -> TaskGraph:
    """Return the graph without these tasks, their edges, and meetings that no task attends any more. Later tasks on
    their lanes move up. A step must not begin or end with one of them."""
    keep = np.ones(len(graph.tasks), np.bool_)
    keep[rows] = False
    moved = np.where(keep, np.cumsum(keep) - 1, NONE).astype(np.int32)
    tasks, edges, steps = graph.tasks.take(keep), graph.edges, graph.steps
    ends = np.concatenate((steps.first, steps.last))
    assert keep[ends[ends >= 0]].all(), "a step begins or ends with what is dropped"
    edges = edges.take(keep[edges.src] & keep[edges.dst])
    attended = np.bincount(tasks.meeting[tasks.meeting >= 0], minlength=len(graph.meetings)) > 0
    places = np.where(attended, np.cumsum(attended) - 1, NONE).astype(np.int32)
    return replace(
        graph,
        tasks=tasks._replace(meeting=_map_indices(places, tasks.meeting)),
        edges=replace(edges, src=moved[edges.src], dst=moved[edges.dst]),
        meetings=graph.meetings.take(attended),
        steps=replace(steps, first=_map_indices(moved, steps.first), last=_map_indices(moved, steps.last)),
        measured=MeasuredTimes(graph.measured.start[keep], graph.measured.stop[keep]),
    )


def in_order(graph: TaskGraph, key: npt.NDArray[Any]) -> TaskGraph:
    """Return the graph with meetings in the order of a key: the order in which they take turns on links."""
    order = np.argsort(key, kind="stable")
    place = np.empty(order.size, np.int32)
    place[order] = np.arange(order.size, dtype=np.int32)
    tasks = graph.tasks._replace(meeting=_map_indices(place, graph.tasks.meeting))
    return replace(graph, tasks=tasks, meetings=graph.meetings.take(order))


def rearrange_tasks(graph: TaskGraph, lane: Index, key: npt.NDArray[Any] | None = None) -> TaskGraph:
    """Return the graph with tasks on other lanes; on each lane they are in the order of `key`, or in their old order if
    it is None."""
    order = np.argsort(lane, kind="stable") if key is None else np.lexsort((key, lane))
    moved = np.empty(order.size, np.int32)
    moved[order] = np.arange(order.size, dtype=np.int32)
    edges, steps = graph.edges, graph.steps
    return replace(
        graph,
        tasks=graph.tasks._replace(lane=lane).take(order),
        edges=replace(edges, src=moved[edges.src], dst=moved[edges.dst]),
        steps=replace(steps, first=_map_indices(moved, steps.first), last=_map_indices(moved, steps.last)),
        measured=MeasuredTimes(graph.measured.start[order], graph.measured.stop[order]),
    )


def _map_indices(moved: Index, ends: Index) -> Index:
    where: Index = np.where(ends >= 0, moved[ends] if moved.size else NONE, NONE).astype(np.int32)
    return where
