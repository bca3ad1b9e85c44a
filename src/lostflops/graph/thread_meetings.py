"""Meetings of threads that run collectives on hosts: both ends of sends, and what each member took beyond the transfer.

On one host all ranks have one clock, which tells what no single rank can: when the first member left, and by how much
the others stayed longer. Where members are on several hosts, what the last to arrive took is all that is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lostflops.graph.tasks import Flags, Index, LaneKind, Meetings, Ns, TaskGraph, Tasks

Key = tuple[int, int]
"""Rank and event."""


def ends_in_order(sends: Sequence[Key], receives: Sequence[Key], known: Mapping[Key, Any]) -> list[tuple[Key, Key]]:
    """Pairs of what one rank sends another and what that one receives, both in order. Recorded times may contradict it:
    a receive that ends before its send was recorded to start. `known` are meetings that were matched by time: they say
    by how many one side's recording began later.

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


def on_one_host(graph: TaskGraph, tasks: Tasks, count: int, hosts: Mapping[int, str | None]) -> Flags:
    """Meetings whose members that were recorded share a host that is known."""
    names = {name: code for code, name in enumerate(dict.fromkeys(hosts.values()))}
    of_rank = {rank: names[hosts.get(rank)] if hosts.get(rank) else -1 - rank for rank in graph.ranks}
    rows = np.flatnonzero(tasks.meeting >= 0)
    code = np.array([of_rank[rank] for rank in graph.lanes.rank.tolist()], np.int64)[tasks.lane[rows]]
    low, high = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(low, tasks.meeting[rows], code)
    np.maximum.at(high, tasks.meeting[rows], code)
    same: Flags = low == high
    return same


def left(graph: TaskGraph, tasks: Tasks, meetings: Meetings, told: Flags, late: Index) -> tuple[Tasks, Meetings]:
    """With transfers that last until the first member has left, and with what each member took longer, for meetings of
    threads that are `told`. When those that were found done `late` left is not known, unless nobody else tells."""
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
