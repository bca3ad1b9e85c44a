"""Removal of the holes between the windows of a run, so that steps replay as if the windows followed each other.

Nothing was recorded between two windows. A task, a pause or a delay that spans such a hole is as long as the hole, on
every lane. This does no harm in a replay without changes: it is in no step. With a change it does: a delay of the last
step of one window then moves seconds without work into the first step of the next.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from lostflops.predict.graph.tasks import DEVICE_KINDS, NONE, Index, MeasuredTimes, Ns, TaskGraph


class Hole(NamedTuple):
    """Time on the common clock in which no rank recorded a step."""

    start: int
    stop: int


def without_holes(graph: TaskGraph) -> TaskGraph:
    """Take the same time out of all lanes for each hole, so that ranks stay aligned."""
    holes = find_holes(graph)
    if not holes:
        return graph
    tasks, edges, start, stop = graph.tasks, graph.edges, *_known_times(graph)
    following = np.zeros(len(tasks), np.bool_)
    following[:-1] = tasks.lane[1:] == tasks.lane[:-1]
    after = np.where(following, np.append(start[1:], 0), stop)
    begins = np.where(edges.after_start, start[edges.src], stop[edges.src])
    return replace(
        graph,
        tasks=replace(
            tasks,
            duration=tasks.duration - np.minimum(tasks.duration, _inside(holes, start, stop)),
            gap=tasks.gap - np.minimum(np.maximum(tasks.gap, 0), _inside(holes, stop, after)),
        ),
        edges=replace(
            edges,
            delay=edges.delay - np.minimum(np.maximum(edges.delay, 0), _inside(holes, begins, start[edges.dst])),
        ),
        lanes=replace(graph.lanes, origin=_close_holes(holes, graph.lanes.origin)),
        measured=MeasuredTimes(_close_holes(holes, graph.measured.start), _close_holes(holes, graph.measured.stop)),
    )


def find_holes(graph: TaskGraph) -> list[Hole]:
    """Find where the numbers of steps jump on every rank; only time that all ranks lack is a hole."""
    steps, (begin, end) = graph.steps, _step_times(graph)
    spans: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for row in np.flatnonzero((steps.rank[1:] == steps.rank[:-1]) & (np.diff(steps.number) > 1)).tolist():
        jump = int(steps.number[row]), int(steps.number[row + 1])
        spans.setdefault(jump, []).append((int(end[row]), int(begin[row + 1])))
    common = [Hole(max(a for a, _ in own), min(b for _, b in own)) for own in spans.values()]
    return sorted(hole for hole in common if hole.stop > hole.start >= 0)


def _step_times(graph: TaskGraph) -> tuple[Ns, Ns]:
    """Return the recorded start and stop of each row of steps: from its first and last task, else from the device tasks
    in it."""
    steps, (start, stop) = graph.steps, _known_times(graph)
    known = (steps.first >= 0) & (steps.last >= 0)
    begin = np.where(known, start[steps.first], NONE) if start.size else np.full(len(steps), NONE, np.int64)
    end = np.where(known, stop[steps.last], NONE) if start.size else begin.copy()
    rest = np.flatnonzero(~known)
    tasks = np.flatnonzero(np.isin(graph.tasks.kind, DEVICE_KINDS))
    if rest.size and tasks.size:
        keys, which = np.unique(_key(graph.rank[tasks], graph.tasks.step[tasks]), return_inverse=True)
        first, last = np.full(keys.size, np.iinfo(np.int64).max), np.full(keys.size, np.iinfo(np.int64).min)
        np.minimum.at(first, which, start[tasks])
        np.maximum.at(last, which, stop[tasks])
        asked = _key(steps.rank[rest], steps.number[rest])
        at = np.minimum(np.searchsorted(keys, asked), keys.size - 1)
        begin[rest] = np.where(keys[at] == asked, first[at], NONE)
        end[rest] = np.where(keys[at] == asked, last[at], NONE)
    return begin, end


def _key(rank: Index, step: Index) -> Ns:
    """Return one number for each rank and step: to sort columns is many times as slow."""
    key: Ns = rank.astype(np.int64) * (1 << 32) + step
    return key


def _known_times(graph: TaskGraph) -> tuple[Ns, Ns]:
    """Return start and stop of each task. A task that was never recorded runs from the stop of the task before it on
    its lane to the start of the next."""
    start, stop, lane = graph.measured.start.copy(), graph.measured.stop.copy(), graph.tasks.lane
    for row in np.flatnonzero(start == NONE).tolist():
        start[row] = stop[row - 1] if row and lane[row - 1] == lane[row] else 0
        stop[row] = start[row]
    unknown = np.flatnonzero(graph.measured.stop == NONE)
    for row in unknown[::-1].tolist():
        if row + 1 < lane.size and lane[row + 1] == lane[row]:
            stop[row] = max(start[row + 1], start[row])
    return start, stop


def _inside(holes: list[Hole], start: Ns, stop: Ns) -> Ns:
    """Return the time of each span that is in a hole."""
    inside = np.zeros(start.size, np.int64)
    for hole in holes:
        inside += np.maximum(np.minimum(stop, hole.stop) - np.maximum(start, hole.start), 0)
    return inside


def _close_holes(holes: list[Hole], time: Ns) -> Ns:
    """Return times as they are once the holes before them are gone; NONE stays NONE."""
    gone = _inside(holes, np.zeros(time.size, np.int64), time)
    return np.where(time == NONE, NONE, time - gone)
