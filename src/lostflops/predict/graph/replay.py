"""Replay of a graph: every task runs as soon as its lane is free and its inputs are done.

All times are integers, so that compiled and plain code give the same result, in whatever order tasks are processed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lostflops.core.errors import UsageError
from lostflops.predict.graph.longest import longest
from lostflops.predict.graph.network import PathNetwork
from lostflops.predict.graph.tasks import DEVICE_KINDS, NONE, Ns, TaskGraph
from lostflops.store.row_groups import group_rows


@dataclass(frozen=True)
class Schedule:
    """When each task of a graph starts and stops."""

    graph: TaskGraph
    start: Ns
    stop: Ns
    met: Ns
    """When the last member of each meeting has arrived and the meeting has its link."""

    @cached_property
    def step_edges(self) -> tuple[Ns, Ns]:
        """Start and stop of each row of the graph's steps."""
        return _step_edges(self)

    @property
    def step_times(self) -> Ns:
        start, stop = self.step_edges
        return stop - start

    @property
    def mean_step(self) -> float:
        """Mean time over all steps of all ranks, in ns, as the ledger averages them."""
        return float(self.step_times.mean()) if len(self.graph.steps) else float("nan")


class Circular(UsageError):
    """Tasks that wait for each other."""


def replay(graph: TaskGraph) -> Schedule:
    """Compute the schedule of a graph. Raise `Circular` if tasks wait for each other: matched wrongly, or recorded by
    clocks that contradict each other."""
    found = longest(_network(graph))
    if found.waiting.size:
        raise Circular(_describe_cycle(graph, found.waiting))
    return Schedule(graph, found.start, found.stop, found.met)


def _network(graph: TaskGraph) -> PathNetwork:
    tasks, edges = graph.tasks, graph.edges
    origin = np.zeros(len(tasks), np.int64)
    first = ~graph.follows
    origin[first] = graph.lanes.origin[tasks.lane[first]]
    return PathNetwork(
        origin=origin,
        duration=tasks.duration,
        gap=tasks.gap,
        follows=graph.follows,
        meeting=tasks.meeting,
        transfer=graph.meetings.transfer,
        turn=turns(graph.meetings.link),
        src=edges.src,
        dst=edges.dst,
        delay=edges.delay,
        after_start=edges.after_start,
    )


def turns(link: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Return for each meeting the meeting that has its link next, NONE if there is no other.

    >>> turns(np.array([0, -1, 0, 1, 0], np.int32)).tolist()
    [2, -1, 4, -1, -1]
    """
    turns = np.full(link.size, NONE, np.int32)
    order = np.argsort(link, kind="stable")
    order = order[link[order] >= 0]
    same = link[order][1:] == link[order][:-1]
    turns[order[:-1][same]] = order[1:][same]
    return turns


def _step_edges(done: Schedule) -> tuple[Ns, Ns]:
    graph, steps = done.graph, done.graph.steps
    start, stop = _device_edges(done)
    told = steps.first >= 0
    start[told] = done.start[steps.first[told]]
    stop[told] = done.stop[steps.last[told]]
    untold = np.flatnonzero(~told)
    for _, rows in group_rows(steps.rank[untold]):
        own = untold[rows]
        start[own] = np.maximum.accumulate(start[own])
        stop[own] = np.maximum(stop[own], start[own])
        ends = own[:-1]
        stop[ends] = np.where(graph.steps.joined[ends], start[own[1:]], np.minimum(stop[ends], start[own[1:]]))
    joined = np.flatnonzero(told & steps.joined)
    stop[joined] = start[joined + 1]
    return start, stop


def _device_edges(done: Schedule) -> tuple[Ns, Ns]:
    """Return the first start and last stop of the device tasks of each step."""
    graph, steps = done.graph, done.graph.steps
    big = np.iinfo(np.int64).max
    start, stop = np.full(len(steps), big, np.int64), np.zeros(len(steps), np.int64)
    rows = np.flatnonzero(np.isin(graph.tasks.kind, DEVICE_KINDS) & (graph.tasks.step >= 0))
    key = _pair(graph.rank[rows], graph.tasks.step[rows])
    wanted = _pair(steps.rank, steps.number)
    order = np.argsort(wanted, kind="stable")
    at = np.minimum(np.searchsorted(wanted[order], key), max(order.size - 1, 0))
    if order.size:
        held = wanted[order][at] == key
        np.minimum.at(start, order[at[held]], done.start[rows[held]])
        np.maximum.at(stop, order[at[held]], done.stop[rows[held]])
    return start, stop


def _pair(rank: npt.NDArray[np.int32], step: npt.NDArray[np.int32]) -> Ns:
    pair: Ns = rank.astype(np.int64) << 32 | step.astype(np.int64)
    return pair


def _describe_cycle(graph: TaskGraph, waiting: npt.NDArray[np.int64]) -> str:
    task = int(waiting[0])
    name = graph.words[graph.tasks.name[task]] if graph.tasks.name[task] >= 0 else "a task"
    return (
        f"{waiting.size:,} of {len(graph.tasks):,} tasks wait for each other, starting with {name!r} on rank "
        f"{int(graph.rank[task])}: collectives were matched wrongly, or records contradict each other. Check in "
        "lostflops ranks how many calls of each rank were matched, and ingest all ranks for the same window."
    )
