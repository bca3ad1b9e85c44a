"""Causes of idle time on a rank of a schedule: what its host did, or that queued work had to wait."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from lostflops.account.ledger.lines import LINES
from lostflops.predict.graph.replay import Schedule
from lostflops.predict.graph.tasks import DEVICE_KINDS, Because, LaneKind, Ns, TaskKind
from lostflops.store.intervals import Intervals
from lostflops.store.row_groups import group_rows

Rows = npt.NDArray[np.int64]
_NEVER: Final = np.iinfo(np.int64).max
_BY_HOST: Final = ("idle.data", "idle.alloc", "idle.compile", "idle.host", "idle.python")
"""Lines of host tasks, in the order of the ledger. A host task on any other line counts as dispatch, `idle.host`."""


@dataclass(frozen=True, slots=True)
class TaskWaits:
    """When the lane came to each task of a schedule, and when each task was launched."""

    came: Ns
    """When its lane was free for the task."""
    call: Ns
    """When the call that launched it began, _NEVER if no launch is known. A task right after a mark on a stream was
    launched with the mark."""
    returned: Ns
    """When that call returned, _NEVER if no launch is known."""
    arrived: Ns
    """When the task had been handed over to the device, _NEVER if no launch is known."""

    @classmethod
    def of(cls, done: Schedule) -> TaskWaits:
        graph, n = done.graph, len(done.graph.tasks)
        came = done.start.copy()
        later = np.flatnonzero(graph.follows)
        came[later] = np.minimum(came[later], done.stop[later - 1] + graph.tasks.gap[later - 1])
        edges = graph.edges.take(graph.edges.because == Because.LAUNCH)
        columns = np.full((3, n), _NEVER, np.int64)
        given = np.where(edges.after_start, done.start[edges.src], done.stop[edges.src]) + edges.delay
        columns[:, edges.dst] = done.start[edges.src], done.stop[edges.src], given
        behind = later[(graph.tasks.kind[later - 1] == TaskKind.MARK) & (columns[0, later] == _NEVER)]
        columns[:, behind] = columns[:, behind - 1]
        return cls(came, *columns)


def thread_idle(done: Schedule, waited: TaskWaits, rows: Rows, idle: Intervals) -> Iterator[tuple[str, Intervals]]:
    """Yield idle time of a rank without a device, by the line of the task that its host is at."""
    yield from _host_lines(_host(done, waited, rows), idle)


def device_idle(done: Schedule, waited: TaskWaits, rows: Rows, idle: Intervals) -> Iterator[tuple[str, Intervals]]:
    """Yield idle time of a device, by the task that ends each gap and by what the host did until that task was handed
    over."""
    start, stop = idle.start, idle.stop
    launch = _launches(done, waited, rows, stop)
    known = launch.call < _NEVER
    begin = np.clip(launch.call, start, stop)
    over = np.maximum(launch.returned, np.where(launch.call >= start, launch.arrived, 0))
    until = np.clip(over, begin, stop)
    host = _host(done, waited, rows)
    began = int(host.start.min()) if host.start.size else _NEVER
    yield "unexplained", Intervals.of(start[known], np.minimum(begin, began)[known])
    before = Intervals.of(start[known], begin[known])
    yield "idle.data", before & host.spans("idle.data")
    yield "idle.sync", Intervals.of(start[known], _find_refill_times(host, start, begin)[known])
    yield from _host_lines(host, before)
    yield "idle.host", Intervals.of(begin[known], until[known])
    yield "idle.dependency", Intervals.of(until[known], stop[known])
    queued = ~known & (launch.latest < start)
    yield "idle.dependency", Intervals.of(start[queued], stop[queued])


class _Host(NamedTuple):
    """Tasks of a rank's host, each from when its lane came to it: time that it then waits is its own."""

    start: Ns
    stop: Ns
    line: npt.NDArray[np.int8]
    blocks: npt.NDArray[np.bool_]
    launches: npt.NDArray[np.bool_]

    def spans(self, line: str) -> Intervals:
        own = self.line == LINES.index(line)
        return Intervals.of(self.start[own], self.stop[own])


def _host(done: Schedule, waited: TaskWaits, rows: Rows) -> _Host:
    graph, tasks = done.graph, done.graph.tasks
    own = rows[graph.lanes.kind[tasks.lane[rows]] == LaneKind.HOST]
    blocks = (tasks.kind[own] == TaskKind.SYNC) & (tasks.line[own] != LINES.index("idle.alloc"))
    known = np.isin(tasks.line[own], [LINES.index(line) for line in _BY_HOST])
    line = np.where(known, tasks.line[own], LINES.index("idle.host")).astype(np.int8)
    launches = tasks.kind[own] == TaskKind.LAUNCH
    return _Host(waited.came[own], done.stop[own], line, blocks, launches)


def _host_lines(host: _Host, free: Intervals) -> Iterator[tuple[str, Intervals]]:
    """Yield free time by the line of the task that the host is at. Long stretches of Python are tasks: time between
    tasks is dispatch."""
    for line in _BY_HOST:
        yield line, free & host.spans(line)
    if host.start.size:
        yield "idle.host", free.clip(int(host.start.min()), int(host.stop.max()))
    yield "idle.python", free


class _Launches(NamedTuple):
    """Launch of the task that ends each gap."""

    call: Ns
    """When the call that launched it began, _NEVER if no launch is known."""
    returned: Ns
    """When that call returned, _NEVER if no launch is known."""
    arrived: Ns
    """When the task had arrived at the device, _NEVER if no launch is known."""
    latest: Ns
    """Latest time at which it can have been launched, since a stream runs its work in order."""


def _launches(done: Schedule, waited: TaskWaits, rows: Rows, stop: Ns) -> _Launches:
    tasks = done.graph.tasks
    device = rows[np.isin(tasks.kind[rows], DEVICE_KINDS)]
    call = waited.call[device]
    latest = _latest(tasks.lane[device], call)
    order = np.lexsort((latest, call, done.start[device]))
    starts = done.start[device][order]
    at = np.minimum(np.searchsorted(starts, stop), max(starts.size - 1, 0))
    ends = starts[at] == stop
    chosen = order[at]
    columns = (
        np.where(ends, column[chosen], _NEVER)
        for column in (call, waited.returned[device], waited.arrived[device], latest)
    )
    return _Launches(*columns)


def _latest(lane: npt.NDArray[np.int32], call: Ns) -> Ns:
    """Return for each task the earliest launch among it and the tasks after it on its lane."""
    latest = call.copy()
    for _, own in group_rows(lane):
        latest[own] = np.minimum.accumulate(call[own][::-1])[::-1]
    return latest


def _find_refill_times(host: _Host, start: Ns, begin: Ns) -> Ns:
    """Return for each gap when its host refilled the queue: the first launch after the return of a call that still
    blocked when the gap began. If no call did, return the start of the gap."""
    blocking, launches = np.flatnonzero(host.blocks), np.sort(host.start[host.launches])
    refilled = start.copy()
    if not blocking.size or not launches.size:
        return refilled
    blocking = blocking[np.argsort(host.start[blocking], kind="stable")]
    at = np.searchsorted(host.start[blocking], start, side="right") - 1
    returned = np.maximum.accumulate(host.stop[blocking])[np.maximum(at, 0)]
    following = np.searchsorted(launches, returned)
    first = np.where(following < launches.size, launches[np.minimum(following, launches.size - 1)], _NEVER)
    waited = (at >= 0) & (first > start) & (returned >= start)
    refilled[waited] = np.minimum(first, begin)[waited]
    return refilled
