"""A schedule on ledger lines: each step of each rank, exact to the nanosecond.

The rules are those of `ledger.partition` and `ledger.gaps`, with data of the graph in place of recorded data. The task
that ends an idle gap of a device explains it. Up to its launch, the gap belongs to what the host's lane does, task by
task (each has its line; between tasks it is dispatch). Until the task is handed over, the gap belongs to the launching
call on the host. After that the task was queued, and the device itself waited. On a rank without a device, the host's
lane explains all idle time.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from lostflops.account.ledger.lines import LINES
from lostflops.predict.graph.idle import Rows, TaskWaits, device_idle, thread_idle
from lostflops.predict.graph.replay import Schedule
from lostflops.predict.graph.tasks import LaneKind, Ns, TaskKind
from lostflops.store.intervals import Intervals
from lostflops.store.row_groups import group_rows

POINT_TO_POINT: Final = ("send", "recv")


def mean_lines(done: Schedule) -> dict[str, float]:
    """Return the mean time of a step of a rank on each line, in ns; together they are the mean step.

    The ledger of a run averages in the same way: over all steps of all ranks.
    """
    held = step_lines(done)
    return dict(zip(LINES, held.mean(axis=0).tolist() if held.size else [0.0] * len(LINES), strict=True))


def step_lines(done: Schedule) -> Ns:
    """Return a row for each of the graph's steps, with a column for each of LINES, in ns; rows sum to the steps'
    times."""
    steps = done.graph.steps
    start, stop = done.step_edges
    held = np.zeros((len(steps), len(LINES)), np.int64)
    waited, tasks = TaskWaits.of(done), dict(group_rows(done.graph.rank))
    for rank, own in group_rows(steps.rank):
        spans = _rank_lines(done, waited, tasks[rank], Intervals.of(start[own], stop[own]))
        for column, line in enumerate(LINES):
            held[own, column] = spans[line].within(start[own], stop[own])
    assert np.array_equal(held.sum(axis=1), stop - start), "ledger lines do not add up to the schedule"
    return held


def _rank_lines(done: Schedule, waited: TaskWaits, rows: Rows, window: Intervals) -> dict[str, Intervals]:
    """Return the part of a window that is on each line, for the rank that has these tasks."""
    layers = _LineLayers(window)
    kind = done.graph.tasks.kind[rows]
    layers.take("compute", _running(done, rows[kind == TaskKind.KERNEL]))
    _communication(done, rows[kind == TaskKind.COMM], layers)
    layers.take("copy", _running(done, rows[kind == TaskKind.COPY]))
    streams = done.graph.lanes.kind[done.graph.tasks.lane[rows]] == LaneKind.STREAM
    explain = device_idle if streams.any() else thread_idle
    for line, span in explain(done, waited, rows, layers.free):
        layers.take(line, span)
    layers.take("unexplained", window)
    return layers.lines


class _LineLayers:
    """Time that is assigned once: no later line can have what one line took."""

    def __init__(self, free: Intervals) -> None:
        self.free = free
        self.lines = dict.fromkeys(LINES, Intervals.empty())

    def take(self, line: str, span: Intervals) -> None:
        if not len(span) or not len(self.free):
            return
        taken = self.free & span
        self.free -= taken
        self.lines[line] |= taken


def _running(done: Schedule, rows: Rows) -> Intervals:
    return Intervals.of(done.start[rows], done.stop[rows])


def _communication(done: Schedule, rows: Rows, layers: _LineLayers) -> None:
    """Assign communication to lines: moving data first, then waits in collectives, then waits of a pipeline's
    transfers."""
    graph, start, stop = done.graph, done.start[rows], done.stop[rows]
    meeting = graph.tasks.meeting[rows]
    ready = np.clip(done.met[meeting], start, stop)
    paired = np.isin(graph.meetings.op[meeting], [graph.word(op) for op in POINT_TO_POINT])
    layers.take("comm.transfer", Intervals.of(ready, stop))
    layers.take("comm.wait", Intervals.of(start[~paired], ready[~paired]))
    layers.take("comm.bubble", Intervals.of(start[paired], ready[paired]))
