"""What if batches were always ready in time, or loaded by more workers?"""

from __future__ import annotations

from typing import Final

import numpy as np

from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.phases import DATA
from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.editing import (
    insert_tasks,
    retime_graph,
    scale_rows,
    skip_tasks,
    with_edges,
    with_lanes,
    with_words,
)
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import NONE, Flags, Index, LaneKind, Ns, TaskGraph, TaskKind, Tasks
from lostflops.predict.whatif.change import Change, Edited, Facts
from lostflops.predict.whatif.graph_edits.selecting import names_with, on_lanes, on_line
from lostflops.predict.whatif.graph_edits.values import count, times
from lostflops.predict.whatif.memory_edits.unchanged_memory import keep_memory_unchanged

_FIXED: Final = "fixed"
_PREFETCH: Final = 2
"""Batches that each worker loads ahead: PyTorch's `prefetch_factor`."""
_DOUBT: Final = 0.05
_DOUBT_OF_WORKERS: Final = 0.3
_WORKERS: Final = "multiprocessing"
_UNKNOWN_SPEED: Final = (
    "the loader has workers, but the run does not show how long they take for a batch: data=fixed gives the upper limit"
)
_OWN_CORES: Final = "Workers are assumed not to slow the training process: they need their own cores, memory and disk."


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    del facts
    loads = _loading(graph)
    if not loads.any():
        raise NotApplicable(
            "no wait for a batch was recorded: data loading costs nothing, or does not use PyTorch's DataLoader"
        )
    if value == _FIXED:
        note = "Every batch is ready when the step asks for it; the copy to the device takes the same time as before."
        return Edited(graph=_without_loading(graph, loads), doubt=_DOUBT, notes=(note,))
    if value.endswith("x"):
        return _with_more_workers(graph, times(value, "data"))
    return _with_workers(graph, loads, count(value, "data"))


def _loading(graph: TaskGraph) -> Flags:
    """Select what the training thread does to get a batch: tasks, and ops inside the loader. Python code before it asks
    for a batch belongs to the program."""
    host, kind = on_lanes(graph, LaneKind.HOST), graph.tasks.kind
    inside = (graph.tasks.phase == DATA) & (kind != TaskKind.MARK) & ~on_line(graph, "idle.python")
    found: Flags = host & ((kind == TaskKind.DATA) | inside)
    return found


def _without_loading(graph: TaskGraph, loads: Flags) -> TaskGraph:
    """Make every batch ready in time. With workers, getting a ready batch takes as long as the quickest recorded one;
    without workers it takes no time, since each batch was made while the training thread waited."""
    tasks = graph.tasks
    waits = loads & (tasks.kind == TaskKind.DATA)
    awaited = np.zeros(len(tasks), np.bool_)
    awaited[graph.edges.dst] = True
    ready = waits & (awaited | names_with(graph, _WORKERS))
    last = int(tasks.duration[ready].min(initial=np.iinfo(np.int64).max))
    inner = np.append(loads[:-1] & loads[1:] & graph.follows[1:], False)
    freed = skip_tasks(graph, loads)
    gap, duration = np.where(inner, 0, tasks.gap), freed.tasks.duration.copy()
    duration[ready] = last
    return retime_graph(freed, duration=duration, gap=gap)


def _with_workers(graph: TaskGraph, loads: Flags, workers: int) -> Edited:
    batches, made = _batches(graph, loads)
    freed = _without_loading(graph, loads)
    rank, number = graph.rank[batches], _count_earlier_rows(graph.rank[batches])
    ranks = np.unique(rank)
    freed, lanes = with_lanes(freed, np.repeat(ranks, workers), LaneKind.LOADER, "loader")
    freed, (word,) = with_words(freed, "load")
    lane = lanes[np.searchsorted(ranks, rank) * workers + number % workers]
    # Batches come evenly, as they do after many: each a share of its time after the one before. The first one is waited
    # for as long as workers lag behind.
    lag = max(0, round(float(made.mean()) / workers - replay(freed).mean_step))
    took = np.where(number < workers, made * number // workers + lag, made)
    duration = freed.tasks.duration.copy()
    duration[batches[number == 0]] += lag
    freed = retime_graph(freed, duration=duration)
    order = np.lexsort((number, lane))
    tasks = _tasks(graph, batches[order], lane[order], took[order], word)
    freed, new, old = insert_tasks(freed, tasks, np.full(order.size, NONE))
    load = np.empty(order.size, np.int32)
    load[order] = new
    taken = old[batches]
    first = taken[number == 0][np.searchsorted(ranks, rank)]
    early = (number > 0) & (number < workers)
    freed = with_edges(freed, first[early], load[early], 0, after_start=True)
    freed = with_edges(freed, load[number > 0], taken[number > 0])
    later = np.flatnonzero(number >= _PREFETCH * workers)
    freed = with_edges(freed, taken[later - _PREFETCH * workers], load[later])
    notes = (
        f"{workers} workers load batches in parallel, each in the recorded time per batch and up to {_PREFETCH} ahead.",
        _OWN_CORES,
    )
    return Edited(graph=freed, doubt=_DOUBT_OF_WORKERS, notes=notes)


def _batches(graph: TaskGraph, loads: Flags) -> tuple[Ns, Ns]:
    """Return the task that asks for each batch, and the time that the training thread spent on making it."""
    tasks = graph.tasks
    rows = np.flatnonzero(loads)
    fresh = np.append(True, (np.diff(rows) > 1) | (np.diff(tasks.lane[rows]) > 0))
    batches = rows[fresh]
    if (tasks.kind == TaskKind.LOAD).any():
        raise NotApplicable(
            "the loader already has workers, but their number was not recorded: give a factor, as in data=2x"
        )
    if names_with(graph, _WORKERS)[rows].any():
        raise NotApplicable(_UNKNOWN_SPEED)
    own = np.cumsum(fresh) - 1
    inner = np.append(~fresh[1:], False)
    spent = tasks.duration[rows] + np.where(inner, np.maximum(tasks.gap[rows], 0), 0)
    return batches, np.bincount(own, spent).astype(np.int64)


def _with_more_workers(graph: TaskGraph, factor: float) -> Edited:
    work = graph.tasks.kind == TaskKind.LOAD
    if not work.any() and names_with(graph, _WORKERS).any():
        raise NotApplicable(_UNKNOWN_SPEED)
    if not work.any():
        raise NotApplicable(
            "the run has no loader workers, or never waits for them: give a number of workers, as in data=4"
        )
    note = f"Workers load batches {factor:g}x as fast as recorded, with as many batches ahead as now."
    changed = retime_graph(graph, duration=scale_rows(graph.tasks.duration, work, 1 / factor))
    return Edited(graph=changed, doubt=_DOUBT_OF_WORKERS, notes=(note, _OWN_CORES))


def _count_earlier_rows(rank: Index) -> Ns:
    """Count the earlier rows of the same rank for each row; rows of a rank are contiguous.

    >>> _count_earlier_rows(np.array([0, 0, 3, 3, 3], np.int32)).tolist()
    [0, 1, 0, 1, 2]
    """
    fresh = np.flatnonzero(np.diff(rank, prepend=-1))
    counted: Ns = np.arange(rank.size) - np.repeat(fresh, np.diff(np.append(fresh, rank.size)))
    return counted


def _tasks(graph: TaskGraph, batches: Index | Ns, lane: Index, took: Ns, word: int) -> Tasks:
    like, size = graph.tasks.take(batches), batches.size
    return like._replace(
        lane=lane.astype(np.int32),
        kind=np.full(size, TaskKind.LOAD, np.int8),
        line=np.full(size, LINES.index("idle.data"), np.int8),
        duration=took.astype(np.int64),
        gap=np.zeros(size, np.int64),
        name=np.full(size, word, np.int32),
        event=np.full(size, NONE, np.int64),
    )


def _how(value: str) -> str:
    workers = value if value.isdecimal() else "more than now" if value == _FIXED else f"{value[:-1]} * now"
    return f"DataLoader(..., num_workers={workers}, prefetch_factor=2, persistent_workers=True)"


CHANGE: Final = Change(
    name="data",
    form="data=fixed|WORKERS|2x",
    about="batches are always ready in time (fixed), or loaded by WORKERS workers, or 2x as fast as now",
    cost="cores, memory and disk bandwidth for the workers; a local disk cache if storage is slow",
    how=_how,
    apply=_apply,
    tried=(_FIXED,),
    remember=keep_memory_unchanged("Waiting batches are in the workers' memory, not in this process."),
)
