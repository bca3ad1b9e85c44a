"""Reductions that every microbatch of a step makes, although only the last one has to.

The host shows where passes begin: a backward pass ends where a forward pass of some length begins. If every backward
pass of a step reduces the same sizes in the same order, the gradients of one model are reduced repeatedly.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from lostflops.account.ledger.phases import BACKWARD, FORWARD
from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.tasks import Flags, TaskGraph, TaskKind
from lostflops.predict.whatif.graph_edits.reductions import members, reductions
from lostflops.predict.whatif.graph_edits.selecting import launchers

Rows = npt.NDArray[np.int64]
_SHORT: Final = 0.25
"""A forward stretch is a pass only if it has more than this part of the longest one's compute tasks: work between nodes
of a backward pass counts as forward too."""


class Repeated(NamedTuple):
    """Reductions that every microbatch of a step makes."""

    passes: int
    """Backward passes per step."""
    early: Flags
    """Meetings of all backward passes but the last of each step."""


def repeated_reductions(graph: TaskGraph) -> Repeated:
    """Find the reductions that every backward pass of a step makes. Raise `NotApplicable` if steps have one backward
    pass, or if only the last one reduces."""
    reduced = reductions(graph)
    rows = members(graph, reduced)
    asker = launchers(graph)
    rows = rows[(asker[rows] >= 0) & (graph.tasks.step[rows] >= 0)]
    computes = _computes(graph, asker)
    early, counts = np.zeros(len(graph.meetings), np.bool_), set[int]()
    key = graph.rank[rows].astype(np.int64) << 32 | graph.tasks.step[rows]
    for one in np.unique(key).tolist():
        own = rows[key == one]
        own = own[np.argsort(asker[own], kind="stable")]
        lane = int(graph.tasks.lane[asker[own[0]]])
        begins = _passes(graph, computes, lane, int(graph.tasks.step[own[0]]))
        which = np.searchsorted(begins, asker[own], "right")
        meeting = graph.tasks.meeting[own]
        sizes = [tuple(graph.meetings.size[meeting[which == number]].tolist()) for number in range(1, begins.size + 1)]
        if len(sizes) < 2 or len(set(sizes)) > 1 or not sizes[0]:
            raise NotApplicable(
                "steps have only one backward pass"
                if len(sizes) < 2
                else "the backward passes of a step do not all make the same reductions"
            )
        counts.add(len(sizes))
        early[meeting[which < begins.size]] = True
    if len(counts) != 1:
        raise NotApplicable("steps have different numbers of backward passes")
    return Repeated(counts.pop(), early)


def _computes(graph: TaskGraph, asker: npt.NDArray[np.int32]) -> Flags:
    """Select host tasks that compute, or launch work that does."""
    found: Flags = graph.tasks.kind == TaskKind.KERNEL
    calls = asker[found]
    found[calls[calls >= 0]] = True
    return found


def _passes(graph: TaskGraph, computes: Flags, lane: int, step: int) -> Rows:
    """Return the first task of each backward pass of a step."""
    tasks = graph.tasks
    rows = np.arange(*np.searchsorted(tasks.lane, np.array((lane, lane + 1), tasks.lane.dtype)))
    rows = rows[(tasks.step[rows] == step) & np.isin(tasks.phase[rows], (FORWARD, BACKWARD))]
    if not rows.size:
        return np.empty(0, np.int64)
    forward = tasks.phase[rows] == FORWARD
    stretch = np.cumsum(np.append(False, forward[1:] != forward[:-1]))
    count = np.bincount(stretch, forward & computes[rows])
    long = forward & (count[stretch] > _SHORT * count.max())
    since = np.cumsum(long)
    back = ~forward
    _, first = np.unique(since[back], return_index=True)
    begins: Rows = rows[back][first]
    return begins
