"""Places where a rank with sharded parameters would gather them; units are the recorded gradient buckets.

A unit is gathered while the previous one computes, and not before the one before that has ended: two are held at once.
Forward units are in the reverse order of buckets, and their share of the pass is their share of the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from lostflops.account.facts.kernel_classes import CLASSES
from lostflops.account.ledger.phases import BACKWARD, FORWARD, OPTIMIZER
from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.tasks import TaskGraph, TaskKind
from lostflops.predict.whatif.graph_edits.more_collectives import Extra, after_on_lane, before_on_lane
from lostflops.predict.whatif.graph_edits.ready import Inputs
from lostflops.predict.whatif.graph_edits.reductions import Round

Rows = npt.NDArray[np.int64]
_OPTIMIZER: Final = CLASSES.index("optimizer")


class ShardPasses(NamedTuple):
    """Compute tasks of a rank's step, in their order on the lane that computes."""

    forward: Rows
    backward: Rows
    optimizer: Rows


class Kernels:
    """Compute tasks by rank and step."""

    def __init__(self, graph: TaskGraph) -> None:
        rows = np.flatnonzero((graph.tasks.kind == TaskKind.KERNEL) & (graph.tasks.step >= 0))
        key = _pair(graph.rank[rows], graph.tasks.step[rows])
        order = np.argsort(key, kind="stable")
        self._graph, self._rows, self._key = graph, rows[order], key[order]

    def passes(self, rank: int, step: int) -> ShardPasses:
        key = _pair(np.array([rank]), np.array([step]))[0]
        rows = self._rows[np.searchsorted(self._key, key) : np.searchsorted(self._key, key, "right")]
        if not rows.size:
            raise NotApplicable(f"rank {rank} computed nothing in step {step}")
        return _passes(self._graph, rows)


def _pair(rank: npt.NDArray[Any], step: npt.NDArray[Any]) -> Rows:
    return rank.astype(np.int64) << 32 | step.astype(np.int64)


def _passes(graph: TaskGraph, rows: Rows) -> ShardPasses:
    tasks = graph.tasks
    lane = np.bincount(tasks.lane[rows], tasks.duration[rows]).argmax()
    own = rows[tasks.lane[rows] == lane]
    updates = (tasks.phase[own] == OPTIMIZER) | (tasks.kernel_class[own] == _OPTIMIZER)
    forward, backward = (own[(tasks.phase[own] == phase) & ~updates] for phase in (FORWARD, BACKWARD))
    found = ShardPasses(forward, backward, own[updates])
    if not all(part.size for part in found):
        raise NotApplicable("forward pass, backward pass and optimizer were not all recognised in the recorded steps")
    return found


class Units(NamedTuple):
    """Units in one pass of a rank."""

    first: Rows
    """First task of each unit."""
    before: int
    """Last task before the pass."""


def gathers(
    graph: TaskGraph, one: Round, own: list[ShardPasses], inputs: Inputs, price: Callable[[int], int]
) -> Iterator[Extra]:
    """Yield the all-gathers of a round: of each unit before its forward and before its backward pass."""
    sizes = graph.meetings.size[one.meetings]
    forward = [_forward(graph, each, sizes) for each in own]
    backward = [_backward(graph, each, inputs, one.tasks[row]) for row, each in enumerate(own)]
    first = one.tasks[:, 0]
    ahead = before_on_lane(graph, first)
    for phase, ranks, order in ((FORWARD, forward, sizes[::-1]), (BACKWARD, backward, sizes)):
        for unit, size in enumerate(order.tolist()):
            holds = np.array([units.first[unit] for units in ranks])
            needs = np.array([_find_release_task(graph, units, unit) for units in ranks])
            late = phase == BACKWARD and unit >= 2
            yield Extra(
                op="all_gather",
                size=size,
                transfer=price(size),
                phase=phase,
                like=first,
                behind=one.tasks[:, unit - 2] if late else ahead,
                needs=needs,
                holds=holds,
                turn=float(one.meetings[unit - 2]) + 0.5 if late else float(one.meetings[0]) - 0.5,
            )


def _forward(graph: TaskGraph, own: ShardPasses, sizes: Rows) -> Units:
    spent = np.cumsum(graph.tasks.duration[own.forward])
    begins = np.concatenate(([0], np.cumsum(sizes[::-1])[:-1])) / sizes.sum() * spent[-1]
    at = np.searchsorted((np.concatenate(([0], spent[:-1])) + spent) / 2, begins)
    first = own.forward[np.minimum(at, own.forward.size - 1)]
    return Units(first, int(before_on_lane(graph, first[:1])[0]))


def _backward(graph: TaskGraph, own: ShardPasses, inputs: Inputs, reduced: Rows) -> Units:
    lane = graph.tasks.lane[own.backward[0]]
    held = next((held for held in inputs.of(reduced) if held.lane == lane), None)
    if held is None:
        raise NotApplicable("gradient reductions do not wait for the compute stream, so the units are unknown")
    first = np.concatenate((own.backward[:1], after_on_lane(graph, held.src[:-1])))
    return Units(first, int(before_on_lane(graph, first[:1])[0]))


def _find_release_task(graph: TaskGraph, units: Units, unit: int) -> int:
    """Return the task that the gathering of a unit waits for: the end of the unit two before it, or the last task
    before the pass."""
    if unit < 2:
        return units.before
    return int(before_on_lane(graph, units.first[unit - 1 : unit])[0])


def after_step(graph: TaskGraph, one: Round, own: list[ShardPasses], size: int, transfer: int) -> Extra:
    """Return one all-gather of all parameters after the optimizer; the next task waits for it."""
    last = np.array([each.optimizer[-1] for each in own])
    reduced = one.tasks[:, -1]
    turn = float(one.meetings[-1]) + 0.75
    return Extra(
        op="all_gather",
        size=size,
        transfer=transfer,
        phase=OPTIMIZER,
        like=reduced,
        behind=reduced,
        needs=last,
        holds=after_on_lane(graph, last),
        turn=turn,
    )


def ranks_of(graph: TaskGraph, one: Round) -> list[int]:
    return [int(rank) for rank in graph.lanes.rank[graph.tasks.lane[one.tasks[:, 0]]]]
