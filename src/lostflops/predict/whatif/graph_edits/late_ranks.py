"""Late ranks capped at their peers: task by task if they do the same, else in sum between two collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lostflops.predict.graph.editing import retime_graph, skip_tasks
from lostflops.predict.graph.tasks import NONE, Flags, LaneKind, Ns, TaskGraph, TaskKind
from lostflops.predict.whatif.graph_edits.selecting import launchers, number_distinct_rows, on_lanes

_HALF: Final = 0.5
Rows = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class AlikeTasks:
    """Tasks of ranks that do the same work, outside of collectives. Whoever caps several of these ranks in turn finds
    them once."""

    rows: Rows
    group: Rows
    """Group of each row, as `groups` numbers them."""
    key: Rows
    """Number of each row: the same task has one number on all ranks."""


def find_alike_tasks(graph: TaskGraph, ranks: Sequence[int]) -> AlikeTasks:
    rows = np.flatnonzero(np.isin(graph.rank, ranks) & (graph.tasks.meeting < 0))
    group = groups(graph, rows, ranks)
    return AlikeTasks(rows, group, _keys(graph, rows, group))


def cap_late_ranks(
    graph: TaskGraph, late: Sequence[int], others: Sequence[int], alike: AlikeTasks | None = None
) -> TaskGraph:
    """Cap the tasks of `late` ranks, and the gaps after them, at the median of the same task on `others`; remove tasks
    that fewer than half of the others have. Time that others spend on tasks which a late rank does not have, or does
    faster, is given back from the time removed between the same two collectives: the rank did the same work in another
    way, or by chance, and must not become faster than the others. `alike` are the tasks of all these ranks, if they are
    known."""
    alike = alike or find_alike_tasks(graph, [*late, *others])
    rows, group, key = alike.rows, alike.group, alike.key
    is_late = np.isin(graph.rank[rows], late)
    theirs = rows[~is_late]
    table = _Table(key[~is_late], np.searchsorted(np.sort(others), graph.rank[theirs]), len(others), key)
    common = table.counts >= _HALF * len(others)
    columns, gone = [], np.zeros(rows.size, np.bool_)
    for column in (graph.tasks.duration, graph.tasks.gap):
        typical = np.where(common, table.medians(column[theirs]), 0)
        changed = column.copy()
        for rank in late:
            own = np.flatnonzero(graph.rank[rows] == rank)
            least = np.minimum(column[rows[own]], typical[key[own]])
            lacking = _lacking(typical, key, group, own)
            quicker = np.maximum(typical[key[own]] - column[rows[own]], 0)
            lacking += np.bincount(group[own], quicker, minlength=lacking.size)
            kept = _given_back(group[own], column[rows[own]] - least, lacking)
            changed[rows[own]] = np.round(least + (column[rows[own]] - least) * kept)
            gone[own] |= ~common[key[own]] & (kept < _HALF)
        columns.append(changed)
    dropped = rows[gone & ~_holding(graph)[rows]]
    for column in columns:
        column[dropped] = 0
    return _cap_lane_starts(skip_tasks(retime_graph(graph, duration=columns[0], gap=columns[1]), dropped), late, others)


def _lacking(typical: npt.NDArray[np.float64], key: Rows, group: Rows, own: Rows) -> npt.NDArray[np.float64]:
    """Return for each group the time of tasks that the others have and these rows lack."""
    lacks = np.ones(typical.size, np.bool_)
    lacks[key[own]] = False
    of_key = np.zeros(typical.size, np.int64)
    of_key[key] = group
    ns = np.where(lacks, np.maximum(typical, 0), 0.0)
    found: npt.NDArray[Any] = np.bincount(of_key, ns, minlength=int(group.max(initial=-1)) + 1)
    return found


def _given_back(group: Rows, taken: Rows, lacking: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return for each task the share of its removed time that is not excess."""
    total = np.bincount(group, taken, minlength=lacking.size)
    share: npt.NDArray[np.float64] = np.minimum(lacking / np.where(total > 0, total, 1), 1)
    return np.where(total > 0, share, 0)[group]


def _holding(graph: TaskGraph) -> Flags:
    """Select tasks that hold others back: marks, and waits for collectives."""
    holds: Flags = graph.tasks.kind == TaskKind.MARK
    holds[graph.edges.dst[graph.tasks.meeting[graph.edges.src] >= 0]] = True
    return holds


class _Table:
    """Values by key and rank; several values of one key and rank are added up. Keys are those of `among`, from 0."""

    def __init__(self, key: Rows, place: Rows, ranks: int, among: Rows) -> None:
        self._at, self._shape = (key, place), (int(among.max(initial=-1)) + 1, ranks)
        seen = np.zeros(self._shape, np.bool_)
        seen[self._at] = True
        self._seen = seen
        self.counts = seen.sum(axis=1)

    def medians(self, values: Ns) -> npt.NDArray[np.float64]:
        """Return the median of each key over ranks; 0 if no rank has the key."""
        rows, ranks = self._shape
        at = self._at[0] * ranks + self._at[1]
        table = np.bincount(at, values, minlength=rows * ranks).reshape(self._shape)
        table[~self._seen] = np.inf
        table.sort(axis=1)
        row, last = np.arange(self._shape[0]), np.maximum(self.counts - 1, 0)
        with np.errstate(invalid="ignore"):
            middle = (table[row, last // 2] + table[row, (last + 1) // 2]) / 2
        found: npt.NDArray[np.float64] = np.where(self.counts > 0, middle, 0.0)
        return found


def groups(graph: TaskGraph, rows: Rows, ranks: Sequence[int]) -> Rows:
    """Number the groups of tasks of one step, on lanes of one name, between the same two collectives, over all
    ranks."""
    lane = graph.tasks.lane[rows]
    role = np.where(graph.lanes.kind[lane] == LaneKind.HOST, NONE, graph.lanes.name[lane])
    return number_distinct_rows(graph.tasks.step[rows], role, segments(graph, ranks)[rows])


def segments(graph: TaskGraph, ranks: Sequence[int]) -> Rows:
    """Count the collectives that the rank of each task called before it in the step: all of them if ranks call equally
    many in each step, else only those that all ranks attend, so that a missing record of one rank shifts nothing."""
    caller, host = launchers(graph), on_lanes(graph, LaneKind.HOST)
    comm = np.flatnonzero((graph.tasks.meeting >= 0) & np.isin(graph.rank, ranks))
    calls = np.where(host[comm], comm, caller[comm])
    comm, calls = comm[calls >= 0], calls[calls >= 0]
    of_pair = number_distinct_rows(graph.tasks.step[calls], graph.rank[calls])
    steps = np.unique(graph.tasks.step[calls]).size
    counts = np.bincount(of_pair, minlength=steps * len(ranks)).reshape(-1, len(ranks)) if of_pair.size else of_pair
    if of_pair.size and (counts.size != steps * len(ranks) or bool((counts != counts[:, :1]).any())):
        meeting = graph.tasks.meeting[comm]
        attended = np.bincount(meeting, minlength=len(graph.meetings))
        calls = calls[attended[meeting] == len(ranks)]
    called = np.bincount(calls, minlength=len(graph.tasks))
    before = np.cumsum(called) - called
    fresh = ~graph.follows
    fresh[1:] |= graph.tasks.step[1:] != graph.tasks.step[:-1]
    since = np.maximum.accumulate(np.where(fresh, np.arange(len(fresh)), 0))
    segment = np.where(host, before - before[since], 0)
    launched = ~host & (caller >= 0)
    segment[launched] = segment[caller[launched]]
    known = np.maximum.accumulate(np.where(host | launched | fresh, np.arange(len(fresh)), 0))
    found: Rows = segment[known]
    return found


def _keys(graph: TaskGraph, rows: Rows, group: Rows) -> Rows:
    """Number tasks so that the same task has one key on all ranks: by its place in the group if that is equally large
    on all ranks that have it, else by its name and how often that came before."""
    sizes = np.bincount(number_distinct_rows(group, graph.rank[rows]))
    each = group[np.unique(number_distinct_rows(group, graph.rank[rows]), return_index=True)[1]]
    least, most = np.full(group.max(initial=-1) + 1, np.iinfo(np.int64).max), np.zeros(group.max(initial=-1) + 1)
    np.minimum.at(least, each, sizes)
    np.maximum.at(most, each, sizes)
    name = np.where((least == most)[group], NONE, graph.tasks.name[rows])
    named = number_distinct_rows(group, name)
    order = np.lexsort((np.arange(rows.size), graph.rank[rows], named))
    fresh = np.ones(rows.size, np.bool_)
    fresh[1:] = (np.diff(named[order]) != 0) | (np.diff(graph.rank[rows][order]) != 0)
    since = np.maximum.accumulate(np.where(fresh, np.arange(rows.size), 0)) if rows.size else fresh
    occurrence = np.empty(rows.size, np.int64)
    occurrence[order] = np.arange(rows.size) - since
    return number_distinct_rows(named, occurrence)


def _cap_lane_starts(graph: TaskGraph, late: Sequence[int], others: Sequence[int]) -> TaskGraph:
    """Start lanes of late ranks no later than the median of the others' lanes of the same name."""
    lanes = graph.lanes
    origin = lanes.origin.copy()
    for lane in np.flatnonzero(np.isin(lanes.rank, late) & (origin > 0)).tolist():
        alike = np.isin(lanes.rank, others) & (lanes.kind == lanes.kind[lane]) & (lanes.name == lanes.name[lane])
        if alike.any():
            origin[lane] = min(int(origin[lane]), int(np.median(origin[alike])))
    return replace(graph, lanes=replace(lanes, origin=origin))
