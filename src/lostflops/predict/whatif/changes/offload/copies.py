"""Copies to and from the host in a graph, on two streams of each rank: one out, one in.

A copy waits for what makes its data and for the copy before it; what needs its data waits for it. Kernels are those of
the lane that computes most. A unit's part of a pass is its part of the bytes, as nothing else relates the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from lostflops.account.facts.kernel_classes import CLASSES
from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.phases import BACKWARD, FORWARD, OPTIMIZER
from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.editing import insert_tasks, with_edges, with_lanes, with_words
from lostflops.predict.graph.tasks import NONE, Index, LaneKind, TaskGraph, TaskKind, Tasks
from lostflops.predict.whatif.changes.offload.blocks import SLICES, STAY
from lostflops.predict.whatif.graph_edits.selecting import of_class, ranks_with_device

Rows = npt.NDArray[np.int64]
_OUT, _IN = 0, 1
_NAMES: Final = ("offload to host", "load from host")


class HostCopy(NamedTuple):
    """A copy between a device and its host. Tasks are rows of the graph, copies are places in the list of all."""

    rank: int
    step: int
    inward: int
    phase: int
    bytes: int
    after: int
    """Task that makes its data, or that it waits for; NONE for no such task."""
    after_start: bool
    """Whether it waits for the start of that task only."""
    copied: int
    """Copy that it waits for, on the other stream; NONE for no such copy."""
    before: int
    """Task that waits for it; NONE for no such task."""


class StepKernels(NamedTuple):
    """Kernels of a rank's step on the lane that computes most, in their order."""

    rank: int
    step: int
    forward: Rows
    backward: Rows
    update: Rows


def kernels_of_steps(graph: TaskGraph) -> Iterator[StepKernels]:
    tasks = graph.tasks
    rows = np.flatnonzero((tasks.kind == TaskKind.KERNEL) & (tasks.meeting < 0) & (tasks.step >= 0))
    updates = (tasks.phase == OPTIMIZER) | of_class(graph, "optimizer")
    for rank in ranks_with_device(graph).tolist():
        mine = rows[graph.rank[rows] == rank]
        if not mine.size:
            continue
        lane = np.bincount(tasks.lane[mine], tasks.duration[mine]).argmax()
        mine = mine[tasks.lane[mine] == lane]
        for step in np.unique(tasks.step[mine]).tolist():
            own = mine[tasks.step[mine] == step]
            parts = [own[(tasks.phase[own] == phase) & ~updates[own]] for phase in (FORWARD, BACKWARD)]
            yield StepKernels(rank, step, parts[0], parts[1], own[updates[own]])


def activation_copies(graph: TaskGraph, sizes: Sequence[int]) -> list[HostCopy]:
    """Return the copies of units of these bytes; the last `STAY` stay on the device. Raise `NotApplicable` if passes
    are not recognised, or if a step has several."""
    copies: list[HostCopy] = []
    for own in kernels_of_steps(graph):
        if not own.forward.size or not own.backward.size:
            raise NotApplicable("forward and backward passes were not recognised in every step")
        if own.forward[-1] > own.backward[0]:
            raise NotApplicable("forward and backward passes of a step alternate, so units cannot be placed")
        copies += _of_step(graph, own, sizes, len(copies))
    if not copies:
        raise NotApplicable("no accelerator was recorded: there is no device memory to move from")
    return copies


def _of_step(graph: TaskGraph, own: StepKernels, sizes: Sequence[int], first: int) -> Iterator[HostCopy]:
    forward = _begins(graph, own.forward, np.array(sizes))
    # Backward runs the units in reverse: the last one first.
    backward = _begins(graph, own.backward, np.array(sizes[::-1]))[::-1]
    moved = len(sizes) - STAY
    for unit in range(moved):
        last, needs = own.forward[forward[unit + 1] - 1], own.forward[forward[unit + STAY]]
        yield HostCopy(own.rank, own.step, _OUT, FORWARD, sizes[unit], int(last), False, NONE, int(needs))
    for turn, unit in enumerate(reversed(range(moved))):
        begins, needs = own.backward[backward[unit + 1]], own.backward[backward[unit]]
        copied = first + moved - 1 - turn
        yield HostCopy(own.rank, own.step, _IN, BACKWARD, sizes[unit], int(begins), True, copied, int(needs))


def _begins(graph: TaskGraph, rows: Rows, sizes: Rows) -> Rows:
    """Return the place of the first kernel of each part of a pass, by the share of its time; each part has a kernel.
    Raise `NotApplicable` if there are not enough of them."""
    if rows.size < sizes.size:
        raise NotApplicable("a pass has fewer kernels than layers, so copies cannot be placed")
    spent = np.concatenate(([0], np.cumsum(graph.tasks.duration[rows])))
    shares = np.concatenate(([0], np.cumsum(sizes)[:-1])) / sizes.sum()
    places = np.searchsorted((spent[1:] + spent[:-1]) / 2, shares * spent[-1])
    count = np.arange(sizes.size)
    places = np.maximum.accumulate(places - count) + count
    begins: Rows = np.minimum(places, rows.size - sizes.size + count)
    return begins


def state_copies(graph: TaskGraph, size: int) -> list[HostCopy]:
    """Return the copies of optimizer states: a slice comes in when the second slice before it is updated and has left,
    and leaves after its own update. The first two come in during the backward pass."""
    copies: list[HostCopy] = []
    for own in kernels_of_steps(graph):
        if not own.update.size or not own.backward.size:
            raise NotApplicable("backward pass and optimizer were not recognised in every step")
        count = min(SLICES, own.update.size)
        begins = _begins(graph, own.update, np.ones(count, np.int64))
        ends = np.append(begins[1:], own.update.size) - 1
        each = -(-size // count)
        first = len(copies)
        for part in range(count):
            ahead = part < STAY
            after = own.backward[0] if ahead else own.update[ends[part - STAY]]
            copied = NONE if ahead else first + 2 * (part - STAY) + 1
            needs, done = int(own.update[begins[part]]), int(own.update[ends[part]])
            copies.append(HostCopy(own.rank, own.step, _IN, OPTIMIZER, each, int(after), ahead, copied, needs))
            copies.append(HostCopy(own.rank, own.step, _OUT, OPTIMIZER, each, done, False, first + 2 * part, NONE))
    if not copies:
        raise NotApplicable("no accelerator was recorded: there is no device memory to move from")
    return copies


def with_copies(graph: TaskGraph, copies: Sequence[HostCopy], rate: float) -> TaskGraph:
    """Return the graph with these copies at a rate in bytes per ns."""
    graph, names = with_words(graph, *_NAMES)
    ranks = sorted({copy.rank for copy in copies})
    lanes: list[Index] = []
    for name in _NAMES:
        graph, own = with_lanes(graph, np.array(ranks), LaneKind.STREAM, name)
        lanes.append(own)
    count = len(copies)
    rank, step, inward, phase, size, after, after_start, copied, before = (
        np.array(column) for column in zip(*copies, strict=True)
    )
    none = np.full(count, NONE, np.int32)
    tasks = Tasks(
        np.stack(lanes)[inward, np.searchsorted(ranks, rank)].astype(np.int32),
        np.full(count, TaskKind.COPY, np.int8),
        np.full(count, LINES.index("copy"), np.int8),
        np.round(size / rate).astype(np.int64),
        np.zeros(count, np.int64),
        none,
        step.astype(np.int32),
        phase.astype(np.int8),
        np.full(count, CLASSES.index("other"), np.int8),
        np.array(names, np.int32)[inward],
        none,
        np.full(count, NONE, np.int64),
    )
    graph, new, old = insert_tasks(graph, tasks, none)
    waits, feeds, chained = (np.flatnonzero(column != NONE) for column in (after, before, copied))
    graph = with_edges(graph, old[after[waits]], new[waits], after_start=after_start[waits])
    graph = with_edges(graph, new[feeds], old[before[feeds]])
    return with_edges(graph, new[copied[chained]], new[chained])
