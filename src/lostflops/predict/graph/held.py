"""Time of critical paths by ledger line, rank, task and stretch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from lostflops.account.ledger.lines import LINES
from lostflops.predict.graph.path import Led, Path
from lostflops.predict.graph.tasks import LaneKind, TaskGraph, TaskKind

Rows = npt.NDArray[Any]

_BETWEEN: Final = {
    Led.LAUNCH: ("launch latency", "idle.host"),
    Led.SYNC: ("return from a sync", "idle.sync"),
    Led.STREAM: ("stream to stream", "idle.dependency"),
    Led.THREAD: ("thread to thread", "idle.host"),
    Led.DATAFLOW: ("pass to pass", "idle.dependency"),
    Led.CHANGE: ("added by a change", "idle.dependency"),
}
_GAPS: Final = {
    LaneKind.HOST: ("between host calls", "idle.host"),
    LaneKind.STREAM: ("between tasks on a stream", "idle.dependency"),
    LaneKind.COMM_THREAD: ("between collectives on a thread", "idle.host"),
    LaneKind.LOADER: ("between loader batches", "idle.data"),
}
PAUSE: Final = "pause"
"""Kind of a piece that is not a task: time that passes from one task to the next."""


@dataclass(frozen=True, slots=True)
class PathPieces:
    """Pieces of paths in order: each is a task's own time, or the time that passes from it to the next task of the
    path."""

    path: Rows
    """Index of the path that a piece belongs to."""
    task: Rows
    rank: Rows
    start: Rows
    ns: Rows
    line: Rows
    what: Rows
    """Index into `names`."""
    met: Rows
    """Whether a piece is a transfer between several ranks."""
    led: Rows
    names: tuple[tuple[str, str], ...]
    """Pairs of kind and name."""

    def take(self, rows: Rows) -> PathPieces:
        columns = {field.name: getattr(self, field.name)[rows] for field in fields(self) if field.name != "names"}
        return replace(self, **columns)


def split_paths(graph: TaskGraph, paths: Sequence[Path]) -> PathPieces:
    """Split each row of the paths into two pieces: the time the task ran, and the time until the next row may start."""
    task, start, ran = (_all(paths, name) for name in ("task", "start", "ran"))
    after = _all(paths, "stop") - start - ran
    led = _all(paths, "led")
    following = np.concatenate([np.append(path.led[1:], Led.LANE) for path in paths])
    number = np.repeat(np.arange(len(paths)), [path.task.size for path in paths])
    what, line, names = _whats(graph, task, following)
    members = np.bincount(graph.tasks.meeting[graph.tasks.meeting >= 0], minlength=len(graph.meetings))
    meeting = graph.tasks.meeting[task]
    several = meeting >= 0
    several[several] = members[meeting[several]] > 1

    def twice(own: Rows, pause: Rows) -> Rows:
        return np.column_stack((own, pause)).ravel()

    columns = (
        twice(number, number),
        twice(task, task),
        twice(graph.rank[task], graph.rank[task]),
        twice(start, start + ran),
        twice(ran, after),
        twice(graph.tasks.line[task], line),
        twice(what[0], what[1]),
        twice(several, np.zeros(task.size, np.bool_)),
        twice(led, led),
    )
    return PathPieces(*columns, names)


def _all(paths: Sequence[Path], name: str) -> Rows:
    return np.concatenate([getattr(path, name) for path in paths])


def _whats(
    graph: TaskGraph, task: Rows, following: Rows
) -> tuple[tuple[Rows, Rows], Rows, tuple[tuple[str, str], ...]]:
    """Return for each row the codes of what runs and of what passes after it, the ledger line of the latter, and the
    kind and name of each code."""
    codes: dict[tuple[str, str], int] = {}
    pairs = graph.tasks.kind[task].astype(np.int64) << 32 | (graph.tasks.name[task].astype(np.int64) + 1)
    unique, place = np.unique(pairs, return_inverse=True)
    own = [
        (TaskKind(pair >> 32).name.lower(), graph.words[(pair & 0xFFFFFFFF) - 1] if pair & 0xFFFFFFFF else "")
        for pair in unique.tolist()
    ]
    runs = np.array([codes.setdefault(one, len(codes)) for one in own], np.int64)[place]
    passes, line = np.zeros(task.size, np.int64), np.zeros(task.size, np.int8)
    lanes = graph.lanes.kind[graph.tasks.lane[task]]
    pauses = [(following == led, told) for led, told in _BETWEEN.items()]
    pauses += [((following < Led.LAUNCH) & (lanes == kind), told) for kind, told in _GAPS.items()]
    for rows, (name, on) in pauses:
        passes[rows] = codes.setdefault((PAUSE, name), len(codes))
        line[rows] = LINES.index(on)
    return (runs, passes), line, tuple(codes)


class PathStretch(NamedTuple):
    """Consecutive pieces of a path that are on one rank and one ledger line."""

    start: int
    ns: int
    rank: int
    line: str
    what: tuple[str, str]
    """Kind and name that took most of its time."""
    tasks: int
    led: Led
    """How the path came to its first piece."""


def stretches(found: PathPieces, most: int) -> tuple[list[PathStretch], int]:
    """Return the longest stretches of one path, in time order, and how many stretches it has in all."""
    some = found.take(found.ns > 0)
    if not some.ns.size:
        return [], 0
    new = np.flatnonzero((np.diff(some.rank) != 0) | (np.diff(some.line) != 0)) + 1
    edges = np.concatenate(([0], new, [some.ns.size]))
    longest = np.sort(np.argsort(-np.add.reduceat(some.ns, edges[:-1]), kind="stable")[:most])
    return [_stretch(some, int(edges[at]), int(edges[at + 1])) for at in longest.tolist()], edges.size - 1


def _stretch(some: PathPieces, first: int, last: int) -> PathStretch:
    ns, what = some.ns[first:last], some.what[first:last]
    most = int(np.bincount(what, weights=ns).argmax())
    return PathStretch(
        int(some.start[first]),
        int(ns.sum()),
        int(some.rank[first]),
        LINES[some.line[first]],
        some.names[most],
        int(np.unique(some.task[first:last]).size),
        Led(some.led[first]),
    )
