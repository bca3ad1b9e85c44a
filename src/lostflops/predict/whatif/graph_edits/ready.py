"""Tasks after which gradients are ready, interpolated between those that recorded reductions waited for.

Gradients become ready in the order of their bytes in the round: a part of the bytes from one recorded bucket to the
next takes the same part of the lane's time between the two tasks that these buckets waited for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.account.ledger.phases import BACKWARD, FORWARD
from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.tasks import NONE, TaskGraph

Rows = npt.NDArray[np.int64]
_SHORT: Final = 0.25
"""A forward stretch counts as a pass only if it takes more than this part of the longest one."""


@dataclass(frozen=True, slots=True)
class HoldingTasks:
    """What held reductions back on one lane."""

    lane: int
    src: Rows
    """Task that each reduction waited for."""
    edges: Rows
    """Edge from that task to the reduction."""


class Inputs:
    """What each reduction of a rank's round waits for, lane by lane."""

    def __init__(self, graph: TaskGraph) -> None:
        self._graph = graph
        order = np.argsort(graph.edges.dst, kind="stable")
        self._order = order
        self._first = np.searchsorted(graph.edges.dst[order], np.arange(len(graph.tasks) + 1))

    def edges_into(self, task: int) -> Rows:
        return self._order[self._first[task] : self._first[task + 1]]

    def of(self, tasks: Rows) -> list[HoldingTasks]:
        """Return the lanes that hold back every one of these tasks, with the last edge from there into each."""
        graph, held = self._graph, list[dict[int, int]]()
        for task in tasks.tolist():
            own: dict[int, int] = {}
            for edge in self.edges_into(task).tolist():
                src = int(graph.edges.src[edge])
                lane = int(graph.tasks.lane[src])
                if lane not in own or src > graph.edges.src[own[lane]]:
                    own[lane] = edge
            held.append(own)
        lanes = [lane for lane in held[0] if all(lane in own for own in held)]
        found = [(lane, np.array([own[lane] for own in held], np.int64)) for lane in lanes]
        return [HoldingTasks(lane, graph.edges.src[edges].astype(np.int64), edges) for lane, edges in found]


def _last_forward(graph: TaskGraph, rows: Rows) -> int:
    """Return the last of these tasks of a lane that is in a forward pass, or NONE. Work between nodes of
    a backward pass counts as forward too, but such a stretch is short compared with a pass."""
    tasks = graph.tasks
    rows = rows[np.isin(tasks.phase[rows], (FORWARD, BACKWARD))]
    forward = tasks.phase[rows] == FORWARD
    stretch = np.cumsum(np.append(False, forward[1:] != forward[:-1]))[: rows.size]
    took = np.bincount(stretch, np.where(forward, tasks.duration[rows] + np.maximum(tasks.gap[rows], 0), 0))
    return int(rows[forward & (took[stretch] > _SHORT * took.max(initial=0))].max(initial=NONE))


def between(graph: TaskGraph, held: HoldingTasks, step: int, place: npt.NDArray[np.float64]) -> tuple[Rows, Rows]:
    """Return the task of the lane after which each place is reached, and the index of the recorded bucket if the place
    is exactly one, else NONE. Places count recorded buckets: 1 is the task that the first one waited for, 1.5 is half
    of the lane's time from there to the next. At 0 the backward pass begins: the last one, if gradients of several are
    summed first."""
    if (np.diff(held.src) < 0).any():
        raise NotApplicable(
            "gradients of a later bucket were ready before those of an earlier one, so buckets cannot be cut in order"
        )
    tasks = graph.tasks
    lane = np.arange(*np.searchsorted(tasks.lane, np.array((held.lane, held.lane + 1), tasks.lane.dtype)))
    ahead = lane[(tasks.step[lane] == step) & (lane <= held.src[0])]
    passes = ahead[(tasks.phase[ahead] == BACKWARD) & (ahead > _last_forward(graph, ahead))]
    begin = int(passes[0]) if passes.size else int(held.src[0])
    rows = np.arange(begin, int(held.src[-1]) + 1)
    spent = np.cumsum(tasks.duration[rows] + np.maximum(tasks.gap[rows], 0))
    anchors = np.concatenate(([0.0], spent[held.src - begin]))
    wanted = np.interp(place, np.arange(anchors.size), anchors)
    near = np.searchsorted((spent[1:] + spent[:-1]) / 2, wanted)
    exact = np.round(place).astype(np.int64)
    whole = (np.abs(place - exact) < 1e-9) & (exact >= 1)
    found = rows[np.clip(near, 0, rows.size - 1)]
    recorded = np.where(whole, exact - 1, NONE)
    return np.where(whole, held.src[recorded], found), recorded
