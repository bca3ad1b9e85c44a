"""Why nothing runs on a rank of a schedule: what its host did, or that work was queued and had to wait."""

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

Rows = npt.NDArray[np.int64]
_NEVER: Final = np.iinfo(np.int64).max
_BY_HOST: Final = ("idle.data", "idle.alloc", "idle.compile", "idle.host", "idle.python")
"""In the order of the ledger. What else a host's task may stand on is dispatch, `idle.host`."""


@dataclass(frozen=True, slots=True)
class TaskWaits:
    """Of all tasks of a schedule: when its lane `came` to each; when the call that launched it began, returned and had
    it handed over, _NEVER where no launch is known. What a mark on a stream holds up was launched with the mark."""

    came: Ns
    call: Ns
    returned: Ns
    arrived: Ns

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
    """On a rank without a device: by the line of the task that its host's lane is at."""
    yield from _host_lines(_host(done, waited, rows), idle)


def device_idle(done: Schedule, waited: TaskWaits, rows: Rows, idle: Intervals) -> Iterator[tuple[str, Intervals]]:
    """By the task that ends each gap, and what the host did until it was handed over."""
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
    """Tasks of a rank's host, each from when its lane came to it: what it then waits for is its own time."""

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
    """By the line of the task that the host is at. Python that lasts is a task: between tasks it is dispatch."""
    for line in _BY_HOST:
        yield line, free & host.spans(line)
    if host.start.size:
        yield "idle.host", free.clip(int(host.start.min()), int(host.stop.max()))
    yield "idle.python", free


class _Launches(NamedTuple):
    """Of what ends each gap: when the call that launched it began and returned, and when it had arrived; _NEVER where
    no launch is known. `latest` is when it was launched at the latest, since a stream runs its work in order."""

    call: Ns
    returned: Ns
    arrived: Ns
    latest: Ns


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
    """The earliest launch of each task and of those behind it on its lane."""
    latest = call.copy()
    for one in np.unique(lane).tolist():
        own = lane == one
        latest[own] = np.minimum.accumulate(call[own][::-1])[::-1]
    return latest


def _find_refill_times(host: _Host, start: Ns, begin: Ns) -> Ns:
    """For each gap until when its host refills the queue: the first launch after the return of a call that still
    blocked when the gap began; its own start where none did."""
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
