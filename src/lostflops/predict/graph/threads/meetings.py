"""Meetings of threads that run collectives on hosts: both ends of sends, and each member's time after the transfer.

A common clock shows what no single rank can: when the first member left, and how much longer the others stayed. If the
clocks of members are not tied to each other, only the duration of the last to arrive is known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lostflops.predict.graph.tasks import Flags, Index, LaneKind, Ns, TaskGraph, TaskMeetings, Tasks

Key = tuple[int, int]
"""Rank and event."""


def ends_in_order(sends: Sequence[Key], receives: Sequence[Key], known: Mapping[Key, Any]) -> list[tuple[Key, Key]]:
    """Pair what one rank sends another with what that one receives, both in order. Recorded times may contradict the
    order: a receive may end before its send was recorded to start. `known` are meetings that were matched by time: they
    show by how many calls one side's recording began later.

    >>> ends_in_order([(0, 5), (0, 6)], [(1, 8), (1, 9)], {})
    [((0, 5), (1, 8)), ((0, 6), (1, 9))]
    >>> ends_in_order([(0, 5), (0, 6)], [(1, 9)], {(0, 6): "x", (1, 9): "x"})
    [((0, 6), (1, 9))]
    """
    place = {known[key]: at for at, key in enumerate(receives) if key in known}
    shifts = [place[known[key]] - at for at, key in enumerate(sends) if known.get(key) in place]
    if not shifts and len(sends) != len(receives):
        return []
    shift = int(np.median(shifts)) if shifts else 0
    first = max(0, -shift)
    return list(zip(sends[first:], receives[first + shift :], strict=False))


def on_one_clock(graph: TaskGraph, tasks: Tasks, count: int, tied: Collection[int]) -> Flags:
    """Return which meetings have all their recorded members on ranks with clocks that are tied to each other."""
    rows = np.flatnonzero(tasks.meeting >= 0)
    loose = ~np.isin(graph.lanes.rank[tasks.lane[rows]], list(tied))
    found: Flags = np.bincount(tasks.meeting[rows], loose, minlength=count) == 0
    return found


def retime_meetings(
    graph: TaskGraph, tasks: Tasks, meetings: TaskMeetings, told: Flags, late: Index
) -> tuple[Tasks, TaskMeetings]:
    """Return tasks and meetings with transfers that last until the first member has left, and with the extra time of
    each member, for meetings of threads in `told`. Members in `late` were found done late, so they count only if no
    other member shows when a meeting was over."""
    own = np.flatnonzero((tasks.meeting >= 0) & (graph.lanes.kind[tasks.lane] == LaneKind.COMM_THREAD))
    own = own[told[tasks.meeting[own]]]
    at, stop = tasks.meeting[own], graph.measured.stop[own]
    sure = ~np.isin(own, late)
    ready, first = _ready(graph, tasks, len(meetings)), np.full(len(meetings), np.iinfo(np.int64).max)
    for rows in (np.flatnonzero(sure), np.flatnonzero(~sure)):
        open_ = rows[first[at[rows]] == np.iinfo(np.int64).max]
        np.minimum.at(first, at[open_], stop[open_])
    known = (first >= ready) & (first < np.iinfo(np.int64).max)
    transfer = np.where(known, first - ready, meetings.transfer)
    duration = tasks.duration.copy()
    duration[own] = np.where(sure, np.maximum(stop - (ready + transfer)[at], 0), 0)
    return tasks._replace(duration=duration), replace(meetings, transfer=transfer)


def _ready(graph: TaskGraph, tasks: Tasks, count: int) -> Ns:
    ready = np.zeros(count, np.int64)
    rows = np.flatnonzero(tasks.meeting >= 0)
    np.maximum.at(ready, tasks.meeting[rows], graph.measured.start[rows])
    return ready
