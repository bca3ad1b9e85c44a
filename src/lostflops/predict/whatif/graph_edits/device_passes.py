"""A traced pipeline reduced to its passes, so that they can be rearranged.

Each rank has its passes from first to last kernel, and what its device does after them in a step; the first stage also
has what its device does before them. A pass is a stretch of kernels, in the order of their launches, that are all
forward or all backward and have no transfer between stages among them. Times are those of the replay.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from lostflops.account.facts.groups import members
from lostflops.account.facts.kernel_classes import CLASSES
from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.phases import BACKWARD, FORWARD, OTHER
from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.parts import no_edges, no_meetings
from lostflops.predict.graph.replay import Schedule, replay
from lostflops.predict.graph.tasks import (
    DEVICE_KINDS,
    NONE,
    Because,
    Flags,
    LaneKind,
    Lanes,
    MeasuredTimes,
    Ns,
    TaskGraph,
    TaskKind,
    Tasks,
)
from lostflops.predict.whatif.graph_edits.selecting import POINT_TO_POINT

_WORDS: Final = ("forward-compute", "backward-compute", "step", "before passes", "after passes")
_STEP, _BEFORE, _AFTER = 2, 3, 4


class Reduced(NamedTuple):
    """A graph of passes only."""

    graph: TaskGraph
    transfer: int
    """Median transfer between stages, in ns."""
    fixed: float
    """Part of the passes in which no kernel computes."""


class _DevicePasses(NamedTuple):
    """Passes in the order of ranks and launches."""

    rank: Ns
    step: Ns
    backward: Ns
    start: Ns
    stop: Ns
    busy: Ns
    """Time that their kernels take, in ns."""


def reduce_to_passes(graph: TaskGraph) -> Reduced:
    """Reduce the graph to its passes, with one lane per rank. Raise `NotApplicable` if no transfers separate the
    passes."""
    ops = [graph.word(op) for op in POINT_TO_POINT]
    meets = graph.tasks.meeting
    between = np.flatnonzero(np.isin(graph.meetings.op, [op for op in ops if op >= 0]))
    transfers = (meets >= 0) & np.isin(meets, between)
    if not transfers.any():
        raise NotApplicable(
            "no microbatch passes and no transfers between stages were recorded: this is not a pipeline"
        )
    stages = _stages(graph, transfers)
    done = replay(graph)
    found = _passes(done, transfers)
    if not found.rank.size or set(np.unique(found.rank).tolist()) != set(graph.ranks):
        raise NotApplicable("not every rank has passes between its transfers, so no pipeline is recognised")
    transfer = round(float(np.median(graph.meetings.transfer[between])))
    fixed = 1 - float(found.busy.sum() / max((found.stop - found.start).sum(), 1))
    return Reduced(_graph(done, found, stages, _ends(done, transfers)), transfer, fixed)


def _stages(graph: TaskGraph, transfers: Flags) -> dict[int, int]:
    """Return the place of each rank among those with which it exchanges activations."""
    rows = np.flatnonzero(transfers)
    groups = dict(zip(graph.rank[rows].tolist(), graph.meetings.group[graph.tasks.meeting[rows]].tolist(), strict=True))
    own = {rank: members(graph.words[group]) for rank, group in groups.items()}
    if set(own) != set(graph.ranks) or any(rank not in ranks for rank, ranks in own.items()):
        raise NotApplicable("which ranks are pipeline stages was not recorded")
    return {rank: ranks.index(rank) for rank, ranks in own.items()}


def _passes(done: Schedule, transfers: Flags) -> _DevicePasses:
    graph, tasks = done.graph, done.graph.tasks
    called = _launches(graph)
    wanted = (tasks.kind == TaskKind.KERNEL) & np.isin(tasks.phase, (FORWARD, BACKWARD)) & (called >= 0)
    rows = np.flatnonzero((wanted | transfers) & (tasks.step >= 0))
    rows = rows[np.lexsort((called[rows], graph.rank[rows]))]
    what = np.where(transfers[rows], NONE, tasks.phase[rows])
    key = np.stack((graph.rank[rows], tasks.step[rows], what))
    first = np.flatnonzero(np.concatenate(([True], (np.diff(key) != 0).any(axis=0))))
    start, stop = np.minimum.reduceat(done.start[rows], first), np.maximum.reduceat(done.stop[rows], first)
    rank, step, phase = key[:, first].astype(np.int64)
    kept = phase != NONE
    busy = np.add.reduceat(tasks.duration[rows], first)
    return _DevicePasses(
        rank[kept], step[kept], (phase[kept] == BACKWARD).astype(np.int64), start[kept], stop[kept], busy[kept]
    )


def _launches(graph: TaskGraph) -> Ns:
    """Return the task that launched each task; a task without one takes that of the task before it on its lane."""
    called = np.full(len(graph.tasks), NONE, np.int64)
    own = graph.edges.because == Because.LAUNCH
    called[graph.edges.dst[own]] = graph.edges.src[own]
    known = np.maximum.accumulate(np.where((called >= 0) | ~graph.follows, np.arange(called.size), 0))
    return called[known]


def _ends(done: Schedule, transfers: Flags) -> dict[tuple[int, int], int]:
    """Return when each rank's device finished each step, without transfers."""
    graph = done.graph
    rows = np.flatnonzero(np.isin(graph.tasks.kind, DEVICE_KINDS) & ~transfers & (graph.tasks.step >= 0))
    keys, which = np.unique(np.stack((graph.rank[rows], graph.tasks.step[rows])), axis=1, return_inverse=True)
    last = np.zeros(keys.shape[1], np.int64)
    np.maximum.at(last, which.ravel(), done.stop[rows])
    return {(rank, step): stop for (rank, step), stop in zip(keys.T.tolist(), last.tolist(), strict=True)}


def _graph(
    done: Schedule, found: _DevicePasses, stages: dict[int, int], ended: dict[tuple[int, int], int]
) -> TaskGraph:
    graph, begins = done.graph, done.step_edges[0]
    ranks = sorted(stages)
    rows: list[tuple[int, ...]] = []
    first, last = np.full(len(graph.steps), NONE, np.int32), np.full(len(graph.steps), NONE, np.int32)
    origins = []
    for lane, rank in enumerate(ranks):
        own = np.flatnonzero(graph.steps.rank == rank)
        since = int(begins[own[0]])
        origins.append(since)
        for at in own.tolist():
            step = int(graph.steps.number[at])
            passes = np.flatnonzero((found.rank == rank) & (found.step == step))
            if not passes.size:
                raise NotApplicable(f"rank {rank} has no passes in step {step}")
            begin, end = int(found.start[passes[0]]), int(found.stop[passes[-1]])
            first[at] = len(rows)
            head = max(begin - since, 0) if stages[rank] == 0 else 0
            rows += [(lane, _STEP, step, NONE, since, since), (lane, _BEFORE, step, NONE, since, since + head)]
            told = zip(*(column[passes].tolist() for column in found[2:5]), strict=True)
            rows += [(lane, backward, step, stages[rank], start, stop) for backward, start, stop in told]
            since = max(ended[rank, step], end)
            last[at] = len(rows)
            rows.append((lane, _AFTER, step, NONE, end, since))
    lane, what, step, stage, start, stop = np.array(rows, np.int64).T
    lanes = Lanes(
        np.array(ranks, np.int32),
        np.full(len(ranks), LaneKind.STREAM, np.int8),
        np.zeros(len(ranks), np.int32),
        np.array(origins, np.int64),
    )
    texts = tuple(f"stage {number} chunk 0" for number in range(max(stages.values()) + 1))
    return TaskGraph(
        tasks=_tasks(lane, what, step, stage, stop - start),
        edges=no_edges(),
        meetings=no_meetings(),
        lanes=lanes,
        steps=replace(graph.steps, first=first, last=last),
        measured=MeasuredTimes(start, stop),
        words=(*_WORDS, *texts),
        notes=graph.notes,
    )


def _tasks(lane: Ns, what: Ns, step: Ns, stage: Ns, duration: Ns) -> Tasks:
    count = lane.size
    phase = np.array([FORWARD, BACKWARD, OTHER, OTHER, OTHER], np.int8)[what]
    return Tasks(
        lane.astype(np.int32),
        np.where(what == _STEP, TaskKind.MARK, TaskKind.KERNEL).astype(np.int8),
        np.full(count, LINES.index("compute"), np.int8),
        duration,
        np.zeros(count, np.int64),
        np.full(count, NONE, np.int32),
        step.astype(np.int32),
        phase,
        np.full(count, CLASSES.index("other"), np.int8),
        what.astype(np.int32),
        np.where(stage >= 0, stage + len(_WORDS), NONE).astype(np.int32),
        np.full(count, NONE, np.int64),
    )
