"""Gradients that the program reduces itself after the backward pass, reduced in buckets during the pass instead.

These are all-reduces that are enqueued after the backward pass, with as many bytes as the model has parameters; if
these are unknown, with 1 MiB or more in each step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.account.ledger.phases import BACKWARD, OTHER
from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.editing import drop_tasks, retime_graph
from lostflops.predict.graph.replay import Schedule
from lostflops.predict.graph.tasks import NONE, Because, Flags, LaneKind, TaskGraph, TaskKind
from lostflops.predict.whatif.change import Edited, Facts
from lostflops.predict.whatif.graph_edits.checked_replay import replay_or_refuse
from lostflops.predict.whatif.graph_edits.more_collectives import Extra, before_on_lane, with_collectives
from lostflops.predict.whatif.graph_edits.ready import HoldingTasks, between
from lostflops.predict.whatif.graph_edits.rebucket import cut_anywhere, cut_between_parameters, gradients_of
from lostflops.predict.whatif.graph_edits.reductions import calls, members, rounds, select_collectives
from lostflops.predict.whatif.graph_edits.selecting import launchers
from lostflops.predict.whatif.graph_edits.transfers import TimedTransfers, apart

Rows = npt.NDArray[np.int64]
SMALL: Final = 65_536
"""Other collectives after a backward pass, such as of a loss, have at most this many bytes."""
LEAST: Final = 1024 * 1024
"""If parameters are not known, a step must reduce at least this many bytes."""
_SAME: Final = 0.02
SCALES: Final = (1.0, 0.5, 2.0)
"""Gradient bytes as a multiple of parameter bytes: gradients may have another dtype than parameters."""
_DOUBT: Final = 0.2
_TANGLED: Final = "the program uses reduced gradients before the last are reduced, so the reductions cannot be moved"


def by_hand(graph: TaskGraph, facts: Facts) -> Flags:
    """Select meetings that reduce gradients after the backward pass. Raise `NotApplicable` if there is none."""
    if not len(graph.meetings):
        raise NotApplicable("no collective was recorded in whole steps")
    told = graph.meetings
    asked: Flags = (
        select_collectives(graph, "all_reduce") & (told.ranks != 1) & (told.size > 0) & behind_backward(graph)
    )
    whole = sum(size for _, size, _ in facts.parameters)
    own = {size for _, size, _ in facts.parameters}
    for chosen in (asked & np.isin(told.size, list(own)), asked & (told.size > SMALL)):
        moved = bytes_a_step(graph, chosen)
        if is_whole(moved, facts, SCALES) if whole else moved >= LEAST:
            return chosen
    raise NotApplicable("the program does not reduce gradients itself after a backward pass")


def behind_backward(graph: TaskGraph) -> Flags:
    """Select meetings that are enqueued after the last backward pass of their step, in groups that enqueue none larger
    than `SMALL` during the pass."""
    tasks, asker = graph.tasks, launchers(graph)
    rows = np.flatnonzero((tasks.meeting >= 0) & (asker >= 0) & (tasks.step >= 0))
    key = tasks.lane.astype(np.int64) << 32 | tasks.step.astype(np.int64) & 0xFFFFFFFF
    passes = np.flatnonzero((tasks.phase == BACKWARD) & (graph.lanes.kind[tasks.lane] == LaneKind.HOST))
    keys, first = np.unique(key[passes], return_index=True)
    last = np.append(first[1:], passes.size) - 1
    if not keys.size:
        return np.zeros(len(graph.meetings), np.bool_)
    own = asker[rows]
    at = np.minimum(np.searchsorted(keys, key[own]), keys.size - 1)
    known = keys[at] == key[own]
    behind = known & (own > passes[last[at]]) & (tasks.phase[own] == OTHER)
    during = known & (own > passes[first[at]]) & (own <= passes[last[at]])
    meeting, sized = tasks.meeting[rows], graph.meetings.size[tasks.meeting[rows]] > SMALL
    mixed = np.unique(graph.meetings.group[meeting[during & sized]])
    found = np.zeros(len(graph.meetings), np.bool_)
    found[meeting[behind]] = True
    chosen: Flags = found & ~np.isin(graph.meetings.group, mixed)
    return chosen


def is_whole(moved: float, facts: Facts, scales: tuple[float, ...]) -> bool:
    """Return whether `moved` is the bytes of all parameters times one of these scales."""
    whole = sum(size for _, size, _ in facts.parameters)
    return whole > 0 and any(abs(moved / (whole * scale) - 1) < _SAME for scale in scales)


def bytes_a_step(graph: TaskGraph, meetings: Flags) -> float:
    rows = members(graph, meetings)
    rows = rows[graph.tasks.step[rows] >= 0]
    return float(graph.meetings.size[graph.tasks.meeting[rows]].sum()) / max(len(graph.steps), 1)


@dataclass(frozen=True, slots=True)
class _CallPlace:
    """Where one rank reduces gradients in one step."""

    ready: int
    """Last task of the backward pass on the lane that makes gradients."""
    user: int
    """Task that waits for the reduced gradients."""
    calling: Rows
    """Host tasks from the first call up to that wait."""


def in_buckets(graph: TaskGraph, facts: Facts, size: float) -> Edited:
    """Reduce the gradients in buckets of `size` bytes, including the first, during the backward pass."""
    chosen = by_hand(graph, facts)
    found = rounds(graph, chosen)
    if not found:
        raise NotApplicable("ranks do not agree on the reductions of a step: record all ranks of the same steps")
    asker, users, transfers = launchers(graph), _users(graph), TimedTransfers.of(graph, facts)
    extras: list[Extra] = []
    low, high = list[float](), list[float]()
    duration, gap = graph.tasks.duration.copy(), graph.tasks.gap.copy()
    for one in found:
        told = graph.meetings
        whole = int(told.size[one.meetings].sum())
        gradients = gradients_of(facts, whole)
        ends = cut_between_parameters(gradients, size, size) if gradients.size else cut_anywhere(whole, size, size)
        sizes = np.diff(ends, prepend=0)
        times = _times(graph, transfers, one.meetings, sizes)
        if len(sizes) <= one.meetings.size:
            # The same bytes in fewer messages take no longer than they did one by one.
            times = np.minimum(times, float(told.transfer[one.meetings].sum()) * sizes / whole)
        low += times[1].tolist()
        high += times[2].tolist()
        places = [_place(graph, own, asker, users) for own in one.tasks]
        for place in places:
            duration[place.calling] = gap[place.calling] = 0
        ready = np.stack([_ready(graph, place, one.step, ends / whole) for place in places])
        for at, (of, ns) in enumerate(zip(sizes.tolist(), times[0].tolist(), strict=True)):
            like = one.tasks[:, 0]
            extras.append(
                Extra(
                    op="all_reduce",
                    size=of,
                    transfer=round(ns),
                    phase=BACKWARD,
                    like=like,
                    behind=before_on_lane(graph, like),
                    needs=ready[:, at],
                    holds=np.array([place.user for place in places], np.int64),
                    turn=float(one.meetings[0]) + 0.5 * (at + 1) / (len(sizes) + 1),
                )
            )
    gone = np.concatenate([one.tasks.ravel() for one in found])
    keys = _keys(graph)[gone]
    changed = with_collectives(retime_graph(graph, duration=duration, gap=gap), extras)
    done = replay_or_refuse(drop_tasks(changed, np.isin(_keys(changed), keys)), _TANGLED)
    before, after = float(np.mean([one.meetings.size for one in found])), len(extras) / len(found)
    notes = (
        f"{before:.3g} reductions per step after the backward pass become {after:.3g} during it.",
        transfers.note,
        "The host time between the first and the last reduction is removed too.",
    )
    extra = {"reductions_before": before, "reductions": after}
    return Edited(graph=done.graph, schedule=done, doubt=_DOUBT, notes=notes, extra=extra, off=_off(done, low, high))


def _times(graph: TaskGraph, transfers: TimedTransfers, meetings: Rows, sizes: Rows) -> npt.NDArray[np.float64]:
    """Return the times of messages of these sizes in place of the recorded ones, at their level: likely, least and
    most."""
    chosen = np.zeros(len(graph.meetings), np.bool_)
    chosen[meetings] = True
    _, kinds, which = calls(graph, chosen)
    known = float(np.array([transfers.ns(*kind) for kind in kinds])[which].sum())
    level = float(graph.meetings.transfer[meetings].sum()) / max(known, 1.0)
    kind = kinds[0]
    told = [transfers.time(kind.op, size, kind.ranks, kind.hosts) for size in sizes.tolist()]
    return level * np.array([[one.ns for one in told], [one.low for one in told], [one.high for one in told]])


def _off(done: Schedule, low: list[float], high: list[float]) -> float:
    """Estimate from the intervals of the new transfers how many ns they may move the step."""
    changed = done.graph
    new = np.zeros(len(changed.meetings), np.bool_)
    rows = (changed.tasks.meeting >= 0) & (changed.tasks.event == NONE)
    new[changed.tasks.meeting[rows]] = True
    told = np.maximum(changed.meetings.transfer[new], 1)
    factors = np.ones((2, len(changed.meetings)))
    if int(new.sum()) != len(low):
        return 0.0
    factors[0, new], factors[1, new] = np.array(low) / told, np.array(high) / told
    return apart(done, *factors)


def _keys(graph: TaskGraph) -> Rows:
    """Return a key of each recorded collective task from its rank and event; NONE for other tasks."""
    key = graph.rank.astype(np.int64) << 48 | graph.tasks.event
    return np.where((graph.tasks.event >= 0) & (graph.tasks.kind == TaskKind.COMM), key, NONE)


def _users(graph: TaskGraph) -> dict[int, list[int]]:
    """Return for each collective the tasks that wait for it."""
    edges = graph.edges
    rows = np.flatnonzero(graph.tasks.kind[edges.src] == TaskKind.COMM)
    found: dict[int, list[int]] = {}
    for src, dst in zip(edges.src[rows].tolist(), edges.dst[rows].tolist(), strict=True):
        if graph.tasks.kind[dst] != TaskKind.COMM:
            found.setdefault(src, []).append(dst)
    return found


def _place(graph: TaskGraph, own: Rows, asker: npt.NDArray[np.int32], users: dict[int, list[int]]) -> _CallPlace:
    tasks = graph.tasks
    waiting = np.array([user for call in own.tolist() for user in users.get(call, ())], np.int64)
    asking = asker[own].astype(np.int64)
    if not waiting.size:
        raise NotApplicable("nothing waits for the recorded reductions")
    user = int(waiting[np.lexsort((waiting, graph.measured.start[waiting]))[-1]])
    on_stream = graph.lanes.kind[tasks.lane[own[0]]] == LaneKind.STREAM
    lane = _making(graph, own) if on_stream else int(tasks.lane[asking[0]])
    step = tasks.step[own[0]]
    passes = np.flatnonzero((tasks.lane == lane) & (tasks.step == step) & (tasks.phase == BACKWARD))
    host = tasks.lane == tasks.lane[asking[0]]
    passes = passes[passes < asking.min()] if lane == tasks.lane[asking[0]] else passes
    if not passes.size:
        raise NotApplicable("no backward pass was recognised before the reductions of a step")
    last = waiting[host[waiting]].max() if host[waiting].any() else asking.max()
    return _CallPlace(int(passes[-1]), user, np.arange(int(asking.min()), int(last) + 1))


def _making(graph: TaskGraph, own: Rows) -> int:
    """Return the stream whose kernels the calls wait for."""
    edges = graph.edges
    rows = (
        np.isin(edges.dst, own) & (edges.because == Because.STREAM) & (graph.tasks.kind[edges.src] == TaskKind.KERNEL)
    )
    lanes = graph.tasks.lane[edges.src[rows]]
    if not lanes.size:
        raise NotApplicable("the reductions wait for no kernel")
    return int(np.bincount(lanes).argmax())


def _ready(graph: TaskGraph, place: _CallPlace, step: int, parts: npt.NDArray[np.float64]) -> Rows:
    """Return for each part of the gradients the task after which it is ready."""
    ready = np.array([place.ready], np.int64)
    held = HoldingTasks(int(graph.tasks.lane[place.ready]), ready, np.empty(0, np.int64))
    return between(graph, held, step, parts)[0]
