"""Which ranks do the same work, and how long each needs when it waits for nobody."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from lostflops.graph.replay import replay
from lostflops.graph.tasks import NONE, Meetings, Ns, TaskGraph
from lostflops.predict.selecting import between_ranks


def cohorts(graph: TaskGraph) -> list[list[int]]:
    """Ranks that are joined by collectives. Two that send to each other are neighbours of a pipeline, so a collective
    that both attend joins nobody."""
    ranks = graph.ranks
    place = {rank: at for at, rank in enumerate(ranks)}
    label = np.arange(len(ranks))
    sent = between_ranks(graph)
    groups = _members(graph)
    pairs = {group for group, meeting in groups.items() if sent[meeting] and len(group) == 2}
    for group, meeting in groups.items():
        if sent[meeting] or any(set(pair) <= set(group) for pair in pairs):
            continue
        own = label[[place[rank] for rank in group]]
        label[np.isin(label, own)] = own.min()
    return [[ranks[at] for at in np.flatnonzero(label == one).tolist()] for one in np.unique(label).tolist()]


def _members(graph: TaskGraph) -> dict[tuple[int, ...], int]:
    """Sets of ranks that meet, each with one of its meetings; who sends is told from who meets."""
    rows = np.flatnonzero(graph.tasks.meeting >= 0)
    pairs = np.unique(np.stack((graph.tasks.meeting[rows], graph.rank[rows]), axis=1), axis=0)
    begins = np.flatnonzero(np.diff(pairs[:, 0], prepend=-1))
    sent = between_ranks(graph)
    found: dict[tuple[tuple[int, ...], bool], int] = {}
    for meeting, ranks in zip(pairs[begins, 0].tolist(), np.split(pairs[:, 1], begins[1:]), strict=True):
        found.setdefault((tuple(ranks.tolist()), bool(sent[meeting])), meeting)
    both = {group for group, is_sent in found if is_sent}
    return {group: meeting for (group, is_sent), meeting in found.items() if is_sent or group not in both}


def alone(graph: TaskGraph) -> TaskGraph:
    """The graph as if nobody waited for anybody and nothing was transferred: meetings of one, that take no time."""
    rows = np.flatnonzero(graph.tasks.meeting >= 0)
    meeting = np.full(len(graph.tasks), NONE, np.int32)
    meeting[rows] = np.arange(rows.size)
    own: Meetings = graph.meetings.take(graph.tasks.meeting[rows])
    own = replace(own, transfer=np.zeros(rows.size, np.int64), link=np.full(rows.size, NONE, np.int32))
    return replace(graph, tasks=graph.tasks._replace(meeting=meeting), meetings=own)


def own_times(graph: TaskGraph) -> tuple[npt.NDArray[np.float64], Ns]:
    """Of each rank in each step what it needs by itself, NaN where it lacks the step; and the steps' numbers."""
    took = replay(alone(graph)).step_times
    steps = np.unique(graph.steps.number)
    times = np.full((len(graph.ranks), steps.size), np.nan)
    times[np.searchsorted(graph.ranks, graph.steps.rank), np.searchsorted(steps, graph.steps.number)] = took
    return times, steps.astype(np.int64)
