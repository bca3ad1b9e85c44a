"""Experts with equal loads: compute between the exchange of tokens and their return, as far as it follows the load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lostflops.account.align.expert_loads import ExpertLoads
from lostflops.predict.graph.editing import retime_graph
from lostflops.predict.graph.tasks import NONE, Flags, LaneKind, TaskGraph
from lostflops.predict.whatif.graph_edits.even_work import computing
from lostflops.predict.whatif.graph_edits.late_ranks import segments
from lostflops.predict.whatif.graph_edits.selecting import launchers, number_distinct_rows, on_lanes, ranks_with_device

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[Any]
_FEWEST: Final = 8
"""Least number of compared times for a rate."""
_LEAST: Final = 0.02
"""Part of its time that a task keeps at least."""


@dataclass(frozen=True, slots=True)
class ExpertTimes:
    """Compute time of experts, by trip and rank."""

    trips: tuple[int, ...]
    """Places in `ExpertLoads.trips`."""
    load: Floats
    ns: Floats
    rate: Floats
    """Time per byte of each trip; 0 where time does not follow the load."""
    doubt: float
    """Standard error of the rates, relative to them."""
    task: Rows
    at: Rows
    """Tasks, and for each the place of its trip and rank in the flattened tables."""

    @property
    def excess(self) -> Floats:
        """Time of each trip and rank beyond that of the mean load; negative below it."""
        found: Floats = self.rate[:, None] * (self.load - self.load.mean(axis=1, keepdims=True))
        return found


def expert_times(graph: TaskGraph, loads: ExpertLoads) -> ExpertTimes | None:
    """Return how long ranks compute after tokens arrived, before they call the next collective; None if the graph has
    none of these trips."""
    place = {rank: at for at, rank in enumerate(loads.ranks)}
    task, trip = _tasks_of_trips(graph, loads)
    if not task.size:
        return None
    trips, row = np.unique(trip, return_inverse=True)
    at = row * len(loads.ranks) + np.array([place[rank] for rank in graph.rank[task].tolist()])
    size = trips.size * len(loads.ranks)
    took = graph.tasks.duration[task] + _pauses(graph)[task]
    ns: Floats = np.bincount(at, took, minlength=size).astype(float).reshape(-1, len(loads.ranks))
    load = np.array([loads.trips[one].load for one in trips.tolist()])
    rate, doubt = _rates(load, ns, np.array([min(loads.trips[one].turn, 2) for one in trips.tolist()]))
    return ExpertTimes(tuple(trips.tolist()), load, ns, rate, doubt, task, at)


def _tasks_of_trips(graph: TaskGraph, loads: ExpertLoads) -> tuple[Rows, Rows]:
    """Return tasks that compute on tokens, and the trip of each: what a thread calls after it called the exchange."""
    caller, host = launchers(graph), on_lanes(graph, LaneKind.HOST)
    owner = np.where(host, np.arange(len(graph.tasks)), caller)
    segment = segments(graph, loads.ranks)
    tasks = graph.tasks
    sends = np.flatnonzero((tasks.meeting >= 0) & (tasks.event >= 0) & (owner >= 0))
    keys = zip(graph.rank[sends].tolist(), tasks.event[sends].tolist(), strict=True)
    found = np.array([loads.sent_by.get(key, NONE) for key in keys], np.int64)
    sends, found = sends[found >= 0], found[found >= 0]
    rows = np.flatnonzero((computing(graph) | _on_hosts_alone(graph)) & (tasks.meeting < 0) & (owner >= 0))
    call, own = owner[sends], owner[rows]
    lane, step = (np.concatenate((part[call], part[own])) for part in (tasks.lane, tasks.step))
    label = number_distinct_rows(lane, step, np.concatenate((segment[call] + 1, segment[rows])))
    trip = np.full(int(label.max(initial=-1)) + 1, NONE, np.int64)
    trip[label[: sends.size]] = found
    of_row = trip[label[sends.size :]]
    return rows[of_row >= 0], of_row[of_row >= 0]


def _on_hosts_alone(graph: TaskGraph) -> Flags:
    """Select tasks of hosts without a device: all that such a host does between two collectives is work on tokens, also
    what no op shows."""
    return on_lanes(graph, LaneKind.HOST) & ~np.isin(graph.rank, ranks_with_device(graph))


def _pauses(graph: TaskGraph) -> Rows:
    """Return the time after each task that counts as its own."""
    return np.where(_on_hosts_alone(graph), np.maximum(graph.tasks.gap, 0), 0)


def _rates(load: Floats, ns: Floats, turn: Rows) -> tuple[Floats, float]:
    """Return the time per byte of each trip, one rate for each turn (forward, then backward or recomputed), and their
    relative standard error. Ranks are compared within a trip, so that what they have in common does not count."""
    rate, doubts = np.zeros(turn.size), []
    for one in np.unique(turn).tolist():
        own = turn == one
        more, longer = (part[own] - part[own].mean(axis=1, keepdims=True) for part in (load, ns))
        spread = float((more**2).sum())
        free = more.size - more.shape[0] - 1
        if spread <= 0 or free < _FEWEST:
            continue
        # No byte takes longer than all time over all bytes: what exceeds that is a slow rank, not its load.
        slope = min(float((more * longer).sum()) / spread, float(ns[own].sum() / load[own].sum()))
        error = float(np.sqrt(((longer - slope * more) ** 2).sum() / free / spread))
        if slope > 2 * error:
            rate[own] = slope
            doubts.append(error / slope)
    return rate, max(doubts, default=1.0)


def even_experts(graph: TaskGraph, times: ExpertTimes) -> TaskGraph:
    """Give all ranks the mean load: each computes as much shorter or longer as its load was off."""
    factor = np.ones(times.ns.shape)
    np.divide(times.ns - times.excess, times.ns, out=factor, where=times.ns > 0)
    duration, gap = graph.tasks.duration.copy(), graph.tasks.gap.copy()
    part = np.maximum(factor, _LEAST).ravel()[times.at]
    duration[times.task] = np.round(duration[times.task] * part)
    pauses = _pauses(graph)[times.task]
    gap[times.task] += np.round(pauses * (part - 1)).astype(np.int64)
    return retime_graph(graph, duration=duration, gap=gap)
