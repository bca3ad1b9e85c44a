"""Selection of the collectives that reduce gradients.

A graph does not say what a collective is for. Gradients are reduced in the backward pass, by an all-reduce or a
reduce-scatter. So are activations in tensor parallel groups, but these reduce about as much in the forward pass.
Metrics, norms and batch statistics are reduced in the forward pass too, and are small compared with gradients.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from lostflops.account.ledger.phases import BACKWARD, FORWARD
from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.tasks import NONE, Because, Flags, Index, Small, TaskGraph, TaskKind

REDUCING: Final = ("all_reduce", "reduce_scatter")
_AS_MUCH: Final = 0.25
"""A tensor parallel group reduces at least this many bytes forward, as a share of those it reduces backward."""
_SAME_SIZES: Final = 0.5
"""At least this share of the bytes that it reduces forward is in messages of sizes that it also reduces backward."""
_FEW_VALUES: Final = 65_536
"""A message of at most this many bytes holds a metric or statistics of a batch."""
Rows = npt.NDArray[np.int64]


def select_collectives(graph: TaskGraph, *ops: str) -> Flags:
    """Select meetings of these operations."""
    named = np.array([word in ops for word in graph.words] or [False])
    return np.asarray(named[graph.meetings.op], np.bool_)


def members(graph: TaskGraph, meetings: Flags) -> Rows:
    """Return the tasks that attend any of these meetings."""
    meeting = graph.tasks.meeting
    return np.flatnonzero((meeting >= 0) & meetings[meeting]) if meetings.size else np.empty(0, np.int64)


def phases(graph: TaskGraph) -> Small:
    """Return the phase of each task. A collective has the phase of what it communicates: of the kernel that it waits
    for, else of the task that enqueued it."""
    found = graph.tasks.phase.copy()
    edges = graph.edges
    comm = graph.tasks.kind[edges.dst] == TaskKind.COMM
    for because in (Because.LAUNCH, Because.THREAD, Because.STREAM):
        own = comm & (edges.because == because)
        found[edges.dst[own]] = graph.tasks.phase[edges.src[own]]
    return found


def in_phase(graph: TaskGraph, phase: int) -> Flags:
    """Select meetings that any member attends in this phase."""
    comm = np.flatnonzero(graph.tasks.meeting >= 0)
    found = np.zeros(len(graph.meetings), np.bool_)
    found[graph.tasks.meeting[comm[phases(graph)[comm] == phase]]] = True
    return found


def reductions(graph: TaskGraph) -> Flags:
    """Select meetings that reduce gradients. Raise `NotApplicable` if there is none."""
    if not len(graph.meetings):
        raise NotApplicable("no collective was recorded in whole steps")
    backward: Flags = _reducing(graph) & in_phase(graph, BACKWARD)
    tensor = np.isin(graph.meetings.group, tensor_groups(graph))
    found: Flags = backward & ~tensor & ~_statistics(graph, backward)
    if not found.any():
        raise NotApplicable("no gradient reduction was recorded: no all-reduce in a backward pass")
    return found


def tensor_groups(graph: TaskGraph) -> Index:
    """Return groups that sum activations: about as many bytes in both passes, in messages of the same sizes. If sizes
    are not known, calls count instead of bytes."""
    told, reducing = graph.meetings, _reducing(graph)
    forward, backward = reducing & in_phase(graph, FORWARD), reducing & in_phase(graph, BACKWARD)
    weight = np.where(told.size > 0, told.size, 1)
    found = []
    for group in np.unique(told.group[forward]).tolist():
        ahead, back = (rows & (told.group == group) for rows in (forward, backward))
        same = ahead & np.isin(told.size, np.unique(told.size[back]))
        moved = float(weight[ahead].sum())
        is_alike = bool(back.any()) and float(weight[same].sum()) >= _SAME_SIZES * moved
        if is_alike and moved >= _AS_MUCH * float(weight[back].sum()):
            found.append(group)
    return np.array(found, np.int32)


def _reducing(graph: TaskGraph) -> Flags:
    found: Flags = select_collectives(graph, *REDUCING) & (graph.meetings.ranks != 1)
    return found


def _statistics(graph: TaskGraph, backward: Flags) -> Flags:
    """Select from these the all-reduces that are no larger than the few values that the same group reduces forward:
    gradients of the statistics of a batch."""
    told, found = graph.meetings, np.zeros(len(graph.meetings), np.bool_)
    few = (
        select_collectives(graph, "all_reduce")
        & in_phase(graph, FORWARD)
        & (told.size > 0)
        & (told.size <= _FEW_VALUES)
    )
    for group in np.unique(told.group[few]).tolist():
        own = told.group == group
        found |= own & (told.size > 0) & (told.size <= told.size[few & own].max())
    return found & backward & select_collectives(graph, "all_reduce")


def select_sized_collectives(graph: TaskGraph, meetings: Flags) -> Flags:
    """Select those whose size is known. Raise `NotApplicable` if most sizes are unknown."""
    known: Flags = meetings & (graph.meetings.size > 0)
    if known.sum() * 2 < meetings.sum():
        raise NotApplicable("collectives were recorded without their sizes: record with lostflops run")
    return known


class Round(NamedTuple):
    """The reductions of one group in one step, in their order."""

    meetings: Rows
    tasks: Rows
    """One row per rank, one column per reduction."""
    step: int


def rounds(graph: TaskGraph, meetings: Flags) -> list[Round]:
    """Return the rounds in which every rank attends every reduction; others are left out."""
    rows = members(graph, meetings)
    rank, step, meeting = graph.rank[rows], graph.tasks.step[rows], graph.tasks.meeting[rows]
    group = graph.meetings.group[meeting]
    found = []
    for key in np.unique(np.stack((group, step), 1), axis=0):
        own = (group == key[0]) & (step == key[1]) & (step != NONE)
        held, ranks = np.unique(meeting[own]), np.unique(rank[own])
        if own.sum() == held.size * ranks.size and held.size:
            order = np.lexsort((meeting[own], rank[own]))
            found.append(Round(held, rows[own][order].reshape(ranks.size, held.size), int(key[1])))
    return found


class ReductionCall(NamedTuple):
    """The operation, size and group that similar meetings have in common."""

    op: str
    size: int
    ranks: int
    hosts: int


def calls(graph: TaskGraph, chosen: Flags) -> tuple[Rows, list[ReductionCall], Rows]:
    """Return the rows of the chosen meetings, the distinct calls among them, and for each row which call it is. A group
    of unknown size counts the ranks that attended; unknown hosts count as one."""
    told, rows = graph.meetings, np.flatnonzero(chosen)
    attended = np.bincount(graph.tasks.meeting[graph.tasks.meeting >= 0], minlength=len(told))
    ranks = np.where(told.ranks > 0, told.ranks, attended)[rows]
    hosts = np.clip(told.hosts[rows], 1, np.maximum(ranks, 1))
    different, which = np.unique(
        np.stack((told.op[rows], told.size[rows], ranks, hosts), 1), axis=0, return_inverse=True
    )
    found = [ReductionCall(graph.words[op], size, n, h) for op, size, n, h in different.tolist()]
    return rows, found, which.ravel()
