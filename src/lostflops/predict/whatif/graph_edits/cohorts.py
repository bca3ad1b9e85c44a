"""Ranks that do the same work, and the time that each needs without waiting for others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import NONE, Ns, TaskGraph, TaskMeetings
from lostflops.predict.whatif.graph_edits.selecting import between_ranks


def cohorts(graph: TaskGraph) -> list[list[int]]:
    """Group ranks that are joined by collectives. Ranks that send to each other, directly or through others, are stages
    of one pipeline, so a collective that two of them attend does not join ranks."""
    groups = _members(graph)
    stages = _join_ranks(graph.ranks, [group for group, is_sent in groups if is_sent])
    pipeline = {rank: at for at, ranks in enumerate(stages) for rank in ranks}
    alike = [
        group for group, is_sent in groups if not is_sent and len({pipeline[rank] for rank in group}) == len(group)
    ]
    return _join_ranks(graph.ranks, alike)


def _join_ranks(ranks: tuple[int, ...], groups: list[tuple[int, ...]]) -> list[list[int]]:
    """Merge groups that share ranks, directly or through others.

    >>> _join_ranks((0, 1, 2, 3), [(0, 2), (2, 3)])
    [[0, 2, 3], [1]]
    """
    label = np.arange(len(ranks))
    for group in groups:
        own = label[np.searchsorted(ranks, group)]
        label[np.isin(label, own)] = own.min()
    return [[ranks[at] for at in np.flatnonzero(label == one).tolist()] for one in np.unique(label).tolist()]


def _members(graph: TaskGraph) -> list[tuple[tuple[int, ...], bool]]:
    """Return the sets of ranks that meet, and for each whether one sends to the other."""
    rows = np.flatnonzero(graph.tasks.meeting >= 0)
    pairs = np.unique(np.stack((graph.tasks.meeting[rows], graph.rank[rows]), axis=1), axis=0)
    begins = np.flatnonzero(np.diff(pairs[:, 0], prepend=-1))
    attended = np.split(pairs[:, 1], begins[1:]) if begins.size else []
    sent = between_ranks(graph)[pairs[begins, 0]].tolist()
    return list(dict.fromkeys(zip((tuple(ranks.tolist()) for ranks in attended), sent, strict=True)))


def alone(graph: TaskGraph) -> TaskGraph:
    """Return the graph as if no rank waited for another and nothing was transferred: every task has its own meeting,
    which takes no time."""
    rows = np.flatnonzero(graph.tasks.meeting >= 0)
    meeting = np.full(len(graph.tasks), NONE, np.int32)
    meeting[rows] = np.arange(rows.size)
    own: TaskMeetings = graph.meetings.take(graph.tasks.meeting[rows])
    own = replace(own, transfer=np.zeros(rows.size, np.int64), link=np.full(rows.size, NONE, np.int32))
    return replace(graph, tasks=graph.tasks._replace(meeting=meeting), meetings=own)


def own_times(graph: TaskGraph) -> tuple[npt.NDArray[np.float64], Ns]:
    """Return the time that each rank needs by itself in each step, NaN if it lacks the step; and the numbers of the
    steps."""
    took = replay(alone(graph)).step_times
    steps = np.unique(graph.steps.number)
    times = np.full((len(graph.ranks), steps.size), np.nan)
    times[np.searchsorted(graph.ranks, graph.steps.rank), np.searchsorted(steps, graph.steps.number)] = took
    return times, steps.astype(np.int64)
