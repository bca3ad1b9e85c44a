"""Critical path of a schedule: the chain of tasks, across ranks, without slack between them.

The path is followed back from the end: a task starts when the last of its inputs lets it, and that input is next. If
several do at the same instant, the task before on the lane comes first, then edges in the order of the graph; of
members that arrived at the same instant, the task's own, then the first of the graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np

from lostflops.predict.graph.replay import Schedule, turns
from lostflops.predict.graph.tasks import DEVICE_KINDS, NONE, Because, Flags, Index, Ns, Small


class Led(IntEnum):
    """How a path comes to a task; from LAUNCH on over an edge, for the reason given in `tasks.Because`."""

    ORIGIN = -4
    """From nowhere: the path begins here."""
    LANE = -3
    """From the task before on its lane."""
    MEETING = -2
    """From the member of the same meeting that arrived last."""
    LINK = -1
    """From the meeting that had the link before."""
    LAUNCH = Because.LAUNCH
    SYNC = Because.SYNC
    STREAM = Because.STREAM
    THREAD = Because.THREAD
    DATAFLOW = Because.DATAFLOW
    CHANGE = Because.CHANGE


@dataclass(frozen=True, slots=True)
class Path:
    """Tasks in time order, each with the part of the path that it holds; rows follow each other without a hole, so that
    they sum to the path's length. Some rows hold no time."""

    task: Index
    start: Ns
    """Start of the part of the path that the task holds."""
    stop: Ns
    """End of that part, exclusive."""
    ran: Ns
    """Time of the task itself, or of its meeting's transfer. The rest of the part passes until the next task of the
    path may start (a gap of the lane, a delay of the edge)."""
    led: Small

    @property
    def length(self) -> int:
        return int((self.stop - self.start).sum())


class PathEnd(NamedTuple):
    """End of a path: the stop or the start of a task."""

    task: int
    at_stop: bool
    floor: int = 0
    """Time at which the path begins; it is not followed further back."""


_Row = tuple[int, int, int, int, int]
_TYPES: Final = (np.int32, np.int64, np.int64, np.int64, np.int8)


def critical_paths(done: Schedule, ends: Sequence[PathEnd]) -> list[Path]:
    """Return the path from each end back to its floor, or to a task that only the origin of its lane holds back."""
    bound = _find_bounds(done)
    return [_path(list(_walk(done, bound, end))[::-1]) for end in ends]


def _path(rows: list[_Row]) -> Path:
    rows[0] = (*rows[0][:4], int(Led.ORIGIN))
    columns = zip(*rows, strict=True)
    return Path(*(np.array(column, kind) for column, kind in zip(columns, _TYPES, strict=True)))


def step_end(done: Schedule, row: int) -> PathEnd:
    """Return what ends a row of the graph's steps; its path goes back to the step's start."""
    graph, steps = done.graph, done.graph.steps
    start, stop = (int(times[row]) for times in done.step_edges)
    if steps.last[row] >= 0:
        joined = bool(steps.joined[row])
        return PathEnd(int(steps.first[row + 1] if joined else steps.last[row]), not joined, start)
    own = np.flatnonzero((graph.rank == steps.rank[row]) & np.isin(graph.tasks.kind, DEVICE_KINDS))
    for at_stop in (not steps.joined[row], bool(steps.joined[row])):
        found = own[(done.stop if at_stop else done.start)[own] == stop]
        if found.size:
            return PathEnd(int(found[0]), bool(at_stop), start)
    raise AssertionError("a step ends where one of its rank's device tasks starts or stops")


class _Bound(NamedTuple):
    """Tasks and meetings that let each task and each meeting start."""

    before: Index
    """Task that let each task start."""
    at_stop: Flags
    """Whether it did so by its stop; else by its start."""
    led: Small
    arrived: Index
    """Member that arrived last at each meeting, NONE if the meeting had to wait for its link."""
    linked: Index
    """Meeting that had the link before each meeting."""
    members: Ns
    """Tasks in the order of meetings."""
    opens: Ns
    """Where the members of each meeting begin."""


def _find_bounds(done: Schedule) -> _Bound:
    graph, edges, start, stop = done.graph, done.graph.edges, done.start, done.stop
    n, m = len(graph.tasks), len(graph.meetings)
    before, at_stop, led = np.full(n, NONE, np.int32), np.ones(n, np.bool_), np.full(n, Led.ORIGIN, np.int8)
    given = np.where(edges.after_start, start[edges.src], stop[edges.src]) + edges.delay
    tight = np.flatnonzero(given == start[edges.dst])[::-1]  # backwards: of several the first is written last
    before[edges.dst[tight]] = edges.src[tight]
    at_stop[edges.dst[tight]] = ~edges.after_start[tight]
    led[edges.dst[tight]] = edges.because[tight]
    lane = np.flatnonzero(graph.follows)
    lane = lane[stop[lane - 1] + graph.tasks.gap[lane - 1] == start[lane]]
    before[lane], at_stop[lane], led[lane] = lane - 1, True, Led.LANE
    meeting = graph.tasks.meeting
    order = np.argsort(meeting, kind="stable")
    members = order[np.searchsorted(meeting[order], 0) :]
    last = members[start[members] == done.met[meeting[members]]][::-1]
    arrived, linked = np.full(m, NONE, np.int32), np.full(m, NONE, np.int32)
    arrived[meeting[last]] = last
    turn = turns(graph.meetings.link)
    linked[turn[turn >= 0]] = np.flatnonzero(turn >= 0)
    opens = np.searchsorted(meeting[members], np.arange(m + 1))
    return _Bound(before, at_stop, led, arrived, linked, members, opens)


def _walk(done: Schedule, bound: _Bound, end: PathEnd) -> Iterator[_Row]:
    """Yield rows from the last to the first. Where an edge reaches back in time (a negative gap), no time is counted
    twice: a row ends where the one after it starts."""
    start, stop, meeting = done.start, done.stop, done.graph.tasks.meeting
    task, at_stop = end.task, end.at_stop
    held = int((stop if at_stop else start)[task])
    while True:
        here = int(meeting[task]) if at_stop else NONE
        begin = int(done.met[here] if here >= 0 else start[task])
        reached = max(min(begin, held), end.floor)
        runs = at_stop or meeting[task] < 0
        ran = max(min(held, int(stop[task])) - reached, 0) if runs else 0
        before, before_stop, led = _before(done, bound, task, here)
        yield task, reached, held, ran, led
        if before < 0 or reached <= end.floor:
            return
        task, at_stop, held = before, before_stop, reached


def _before(done: Schedule, bound: _Bound, task: int, here: int) -> tuple[int, bool, int]:
    """Return the task before on the path, whether the path left it at its stop, and how it led here."""
    if here >= 0 and done.start[task] != done.met[here]:
        if bound.arrived[here] >= 0:
            return int(bound.arrived[here]), False, Led.MEETING
        return _member(done, bound, int(bound.linked[here]), task), True, Led.LINK
    return int(bound.before[task]), bool(bound.at_stop[task]), int(bound.led[task])


def _member(done: Schedule, bound: _Bound, meeting: int, task: int) -> int:
    """Return a task that attended the meeting, one of the given task's own rank if there is one."""
    rank, lane = done.graph.lanes.rank, done.graph.tasks.lane
    members = bound.members[bound.opens[meeting] : bound.opens[meeting + 1]]
    own = members[rank[lane[members]] == rank[lane[task]]]
    return int(own[0] if own.size else members[0])
