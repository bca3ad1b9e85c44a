"""Selection of the tasks that a change affects."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lostflops.account.facts.kernel_classes import CLASSES
from lostflops.account.ledger.lines import LINES
from lostflops.predict.graph.tasks import NONE, Because, Flags, Index, LaneKind, TaskGraph, TaskKind

POINT_TO_POINT: Final = ("send", "recv", "send_recv")
_PAIR: Final = 2
_SPARSE: Final = 16


def number_distinct_rows(*columns: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Number the distinct rows from 0, and return the number of each row.

    >>> number_distinct_rows(np.array([5, 5, 3]), np.array([1, 2, 1])).tolist()
    [1, 2, 0]
    """
    code = np.zeros(columns[0].size, np.int64)
    for column in columns:
        which = _places(column)
        code = _places(code * (int(which.max(initial=0)) + 1) + which)
    return code


def _places(column: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the place of each number among the distinct ones. If these are dense, counting is faster than sorting.

    >>> _places(np.array([5, -1, 5])).tolist(), _places(np.array([5, -(10**9)])).tolist()
    ([1, 0, 1], [1, 0])
    """
    low = int(column.min(initial=0))
    span = int(column.max(initial=0)) - low + 1
    if span > _SPARSE * column.size:
        return np.unique(column, return_inverse=True)[1].astype(np.int64)
    at = column.astype(np.int64) - low
    seen = np.zeros(span, np.bool_)
    seen[at] = True
    places: npt.NDArray[np.int64] = (np.cumsum(seen) - 1)[at]
    return places


def on_lanes(graph: TaskGraph, kind: LaneKind) -> Flags:
    """Select tasks that run on lanes of this kind."""
    found: Flags = graph.lanes.kind[graph.tasks.lane] == kind
    return found


def on_line(graph: TaskGraph, *lines: str) -> Flags:
    return np.isin(graph.tasks.line, [LINES.index(line) for line in lines])


def of_class(graph: TaskGraph, *classes: str) -> Flags:
    """Select kernels of these classes."""
    named = np.isin(graph.tasks.kernel_class, [CLASSES.index(name) for name in classes])
    found: Flags = named & (graph.tasks.kind == TaskKind.KERNEL)
    return found


def ranks_with_device(graph: TaskGraph) -> Index:
    return np.unique(graph.lanes.rank[graph.lanes.kind == LaneKind.STREAM])


def launchers(graph: TaskGraph) -> Index:
    """Return for each task the one that launched it, or handed it to another thread, or NONE."""
    edges = graph.edges
    rows = np.isin(edges.because, (Because.LAUNCH, Because.THREAD))
    rows &= on_lanes(graph, LaneKind.HOST)[edges.src] & ~on_lanes(graph, LaneKind.HOST)[edges.dst]
    found = np.full(len(graph.tasks), NONE, np.int32)
    found[edges.dst[rows]] = edges.src[rows]
    return found


def between_ranks(graph: TaskGraph) -> Flags:
    """Select meetings of a sender and a receiver. With more than two attending, kernels that send are those of an
    all-to-all. If more than two ranks were recorded, two that meet for an unknown operation count as such a pair."""
    unknown = ("",) if len(graph.ranks) > _PAIR else ()
    words = [graph.word(op) for op in (*POINT_TO_POINT, *unknown)]
    attended = np.bincount(graph.tasks.meeting[graph.tasks.meeting >= 0], minlength=len(graph.meetings))
    found: Flags = np.isin(graph.meetings.op, [word for word in words if word != NONE]) & (attended <= _PAIR)
    return found


def names_with(graph: TaskGraph, *parts: str) -> Flags:
    """Select tasks whose name contains one of these parts, ignoring case."""
    held = np.array([any(part in word.casefold() for part in parts) for word in graph.words], np.bool_)
    found: Flags = held[graph.tasks.name] & (graph.tasks.name >= 0)
    return found
