"""What if sharded parameters were gathered earlier?

With `prefetch=K`, the host enqueues the all-gather of a unit when it reaches the unit K places before it.

The all-gathers that a host enqueues before the first kernel of a pass show how far ahead the run gathers; each later
one starts a new unit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from lostflops.account.ledger.phases import BACKWARD, FORWARD
from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.editing import rearrange_tasks, with_edges, without_edges
from lostflops.predict.graph.tasks import NONE, Because, Flags, LaneKind, TaskGraph, TaskKind
from lostflops.predict.whatif.change import Change, Edited, Facts
from lostflops.predict.whatif.graph_edits.checked_replay import replay_or_refuse
from lostflops.predict.whatif.graph_edits.ready import Inputs
from lostflops.predict.whatif.graph_edits.reductions import members, select_collectives
from lostflops.predict.whatif.graph_edits.values import count

_UNORDERED: Final = "other work runs between the all-gathers and their units, so they cannot be moved"


_FEWEST = 2


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    del facts
    wanted = 0 if value == "0" else count(value, "prefetch")
    found = Gathering(graph)
    if not found.series:
        raise NotApplicable("no step has two parameter all-gathers in one pass: there is nothing to prefetch")
    if wanted == found.depth:
        raise NotApplicable(f"the run already gathers {wanted} units ahead")
    notes = (
        f"Units gathered ahead: {found.depth} in the run (from the order of enqueued work), {wanted} with the change.",
        "Memory for units gathered early, and waits for that memory, are not counted.",
    )
    done = replay_or_refuse(_move_gathers(graph, found, wanted), _UNORDERED)
    return Edited(graph=done.graph, schedule=done, doubt=0.3, notes=notes, extra={"recorded_prefetch": found.depth})


CHANGE: Final = Change(
    name="prefetch",
    form="prefetch=K",
    about="all-gathers of sharded parameters are enqueued K units ahead; 0: no prefetch",
    cost="units gathered early hold their memory longer",
    how=lambda value: (
        f"module.set_modules_to_forward_prefetch(the next {value}) and set_modules_to_backward_prefetch (FSDP2); "
        "FSDP1: forward_prefetch=True, backward_prefetch=BackwardPrefetch.BACKWARD_PRE"
    ),
    apply=_apply,
    tried=("1", "2"),
)


Rows = npt.NDArray[np.int64]


class GatherCalls:
    """Where the host enqueues each task, NONE for collectives if unknown; and the kernels of the lane on which each
    rank computes, in the order of their calls."""

    def __init__(self, graph: TaskGraph) -> None:
        edges, tasks = graph.edges, graph.tasks
        from_host = graph.lanes.kind[tasks.lane[edges.src]] == LaneKind.HOST
        enqueues = from_host & np.isin(edges.because, (Because.LAUNCH, Because.THREAD))
        self.at = np.arange(len(tasks))
        self.at[tasks.kind == TaskKind.COMM] = NONE
        self.at[edges.dst[enqueues]] = edges.src[enqueues]
        kernels = np.flatnonzero(tasks.kind == TaskKind.KERNEL)
        busy = np.bincount(tasks.lane[kernels], tasks.duration[kernels], len(graph.lanes))
        main = [np.where(graph.lanes.rank == rank, busy, -1).argmax() for rank in graph.ranks]
        kernels = kernels[np.isin(tasks.lane[kernels], main)]
        self._kernels = kernels[np.argsort(self.at[kernels], kind="stable")]
        self._called = self.at[self._kernels]
        self._rank = graph.rank

    def next_kernel(self, call: int) -> int:
        """Return the first kernel that a rank's host enqueues after a call, or NONE."""
        at = int(np.searchsorted(self._called, call, "right"))
        if at == self._kernels.size or self._rank[self._kernels[at]] != self._rank[call]:
            return NONE
        return int(self._kernels[at])


class GatherSeries(NamedTuple):
    """All-gathers of a rank in one pass, in the order of their units."""

    rows: Rows
    users: Rows
    """Kernel that each all-gather is for, NONE if unknown."""


class Gathering:
    """The all-gathers of a run, and how far ahead it gathers (`depth`, in units)."""

    def __init__(self, graph: TaskGraph) -> None:
        self.calls = GatherCalls(graph)
        rows = list(self._passes(graph, _gathers(graph)))
        bursts = [self._burst(each) for each in rows]
        self.depth = round(float(np.median(bursts))) - 1 if bursts else 0
        out = np.argsort(graph.edges.src, kind="stable")
        first = np.searchsorted(graph.edges.src[out], np.arange(len(graph.tasks) + 1))
        targets = graph.edges.dst[out]
        self.series = [GatherSeries(each, self._users(graph, each, targets, first)) for each in rows]

    def _passes(self, graph: TaskGraph, chosen: Flags) -> Iterator[Rows]:
        """Yield all-gathers by lane, step and pass; the pass is that of the kernel which the host enqueues next."""
        rows = members(graph, chosen)
        rows = rows[(graph.tasks.step[rows] >= 0) & (self.calls.at[rows] >= 0)]
        nexts = np.array([self.calls.next_kernel(call) for call in self.calls.at[rows].tolist()], np.int64)
        phase = np.where(nexts >= 0, graph.tasks.phase[nexts], NONE)
        kept = np.isin(phase, (FORWARD, BACKWARD))
        key = np.stack((graph.tasks.lane[rows], graph.tasks.step[rows], phase), 1)[kept]
        _, which = np.unique(key, axis=0, return_inverse=True)
        for number in range(int(which.max(initial=NONE)) + 1):
            own = rows[kept][which.ravel() == number]
            if own.size >= _FEWEST:
                yield own

    def _burst(self, rows: Rows) -> int:
        """Count the all-gathers that are enqueued before any kernel."""
        kernel = self.calls.next_kernel(int(self.calls.at[rows[0]]))
        return int((self.calls.at[rows] < self.calls.at[kernel]).sum())

    def _users(self, graph: TaskGraph, rows: Rows, targets: npt.NDArray[np.int32], first: Rows) -> Rows:
        """Return the kernel that each all-gather is for: the one after the all-gather that begins its unit; for the
        last ones, which begin no unit, the first task that waits for them."""
        users = np.full(rows.size, NONE, np.int64)
        for unit, row in enumerate(rows.tolist()):
            if unit + self.depth < rows.size:
                users[unit] = self.calls.next_kernel(int(self.calls.at[rows[unit + self.depth]]))
                continue
            waiting = targets[first[row] : first[row + 1]]
            waiting = waiting[(graph.tasks.kind[waiting] != TaskKind.COMM) & (waiting > users[unit - 1])]
            users[unit] = waiting.min(initial=len(graph.tasks)) if waiting.size else NONE
        return users


def _gathers(graph: TaskGraph) -> Flags:
    """Select all-gathers of groups that also reduce-scatter."""
    scattered = np.unique(graph.meetings.group[select_collectives(graph, "reduce_scatter")])
    found: Flags = select_collectives(graph, "all_gather") & np.isin(graph.meetings.group, scattered)
    if not found.any():
        raise NotApplicable("no all-gather of sharded parameters was recorded: prefetch is for FSDP and ZeRO-3")
    return found


def _move_gathers(graph: TaskGraph, found: Gathering, wanted: int) -> TaskGraph:
    """Enqueue each all-gather `wanted` units ahead: it waits for what the all-gather recorded at that place waited for,
    and only its own unit waits for it. Lanes run collectives in the order in which the host then enqueues them."""
    inputs = Inputs(graph)
    place = found.calls.at.astype(np.float64)
    src: list[int] = []
    dst: list[int] = []
    like: list[int] = []
    own: list[tuple[int, int]] = []
    for rows, users in found.series:
        for unit, row in enumerate(rows.tolist()):
            model = unit - wanted + found.depth if unit > wanted else 0
            if model >= rows.size and users[unit] >= 0:
                place[row] = found.calls.at[users[unit]] - 0.5
                own += _late(graph, found.calls, row, int(users[unit]))
                edges = list[int]()
            else:
                kept = int(rows[min(model, rows.size - 1)])
                place[row] = found.calls.at[kept] + unit / (2 * rows.size)
                edges = inputs.edges_into(kept).tolist()
            src += graph.edges.src[edges].tolist()
            dst += [row] * len(edges)
            like += edges
            own += [(row, int(users[unit]))] if users[unit] >= 0 else []
    gathers = np.concatenate([each.rows for each in found.series])
    released = np.isin(graph.edges.src, gathers) & (graph.tasks.kind[graph.edges.dst] == TaskKind.KERNEL)
    changed = without_edges(graph, released | np.isin(graph.edges.dst, gathers))
    told = graph.edges.take(np.array(like, np.int64))
    begins, ends = (np.array(column, np.int64) for column in (src, dst))
    changed = with_edges(changed, begins, ends, told.delay, after_start=told.after_start, because=told.because)
    changed = with_edges(changed, *np.array(own, np.int64).reshape(-1, 2).T)
    return rearrange_tasks(changed, graph.tasks.lane, _order(graph, gathers, place))


def _late(graph: TaskGraph, calls: GatherCalls, row: int, user: int) -> Iterator[tuple[int, int]]:
    """Yield the edges of an all-gather that is enqueued right before the kernel that needs it: it comes after what was
    before that kernel on the host and on its lane."""
    for task in {int(calls.at[user]), user}:
        if graph.follows[task]:
            yield task - 1, row


def _order(graph: TaskGraph, gathers: Rows, place: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return sort keys of tasks: on lanes with all-gathers by the host's calls, tasks without a call right after the
    task before them; other lanes keep their order."""
    key = np.arange(len(graph.tasks), dtype=np.float64)
    for lane in np.unique(graph.tasks.lane[gathers]).tolist():
        first, last = np.searchsorted(graph.tasks.lane, (lane, lane + 1))
        own = place[first:last]
        held = np.maximum.accumulate(np.where(own >= 0, np.arange(own.size), 0))
        key[first:last] = own[held]
    return key
