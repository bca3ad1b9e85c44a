"""Unrecorded waits between ranks on their hosts: a barrier through the store, or a backend that records nothing.

On one rank, such a wait is Python that runs no op. On all ranks together, it is a stretch that begins at different
times and ends at the same moment, which independent work does not. Such stretches become meetings: the duration of the
last to begin is the transfer, and the rest was waiting.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from lostflops.account.ledger.lines import LINES
from lostflops.predict.graph.editing import retime_graph, with_meetings, with_words
from lostflops.predict.graph.tasks import NONE, TaskGraph, TaskKind, TaskMeetings

if TYPE_CHECKING:
    from lostflops.store.run import Run

HOST_WAIT: Final = "wait on the host"
LONG: Final = 1_000_000
"""Shortest stretch that can be a meeting, and smallest difference between its starts on different ranks, in ns."""
TOGETHER: Final = 100_000
"""Ends of one meeting are at most this far apart, in ns, and at most a tenth as far apart as its starts."""
FEWEST: Final = 3
"""Fewest ranks of a meeting: two ranks end at the same moment by chance too often."""


def host_meetings(run: Run, graph: TaskGraph) -> TaskGraph:
    """Return the graph with these stretches as meetings, only if all ranks are known to be on one host: its clocks
    agree."""
    hosts = {host for (host,) in run.rows("select distinct host from ranks")}
    ranks = len(graph.ranks)
    if len(hosts) != 1 or None in hosts or ranks < FEWEST:
        return graph
    python = (graph.tasks.line == LINES.index("idle.python")) & (graph.tasks.kind == TaskKind.HOST)
    rows = np.flatnonzero(python & (graph.tasks.duration >= LONG) & (graph.measured.start >= 0))
    met = _together(graph, rows[np.argsort(graph.measured.stop[rows], kind="stable")], ranks)
    return _meeting(graph, met) if met.size else graph


def _together(graph: TaskGraph, rows: npt.NDArray[np.int64], ranks: int) -> npt.NDArray[np.int64]:
    """Return tasks as one row per meeting and one column per rank. A meeting has as many neighbours in the order of
    ends as there are ranks."""
    if rows.size < ranks:
        return np.empty((0, ranks), np.int64)
    ended = graph.measured.stop[rows]
    apart = ended[ranks - 1 :] - ended[: ended.size - ranks + 1]
    near = np.flatnonzero(apart <= TOGETHER)
    beside = np.lib.stride_tricks.sliding_window_view(rows, ranks)[near]
    each = (np.diff(np.sort(graph.rank[beside], axis=1), axis=1) > 0).all(axis=1)
    begins = np.ptp(graph.measured.start[beside], axis=1)
    found = np.flatnonzero(each & (begins >= np.maximum(LONG, 10 * apart[near])))
    met, free = [], 0
    for window in found.tolist():
        if near[window] >= free:  # shares no stretch with the one before
            met.append(window)
            free = int(near[window]) + ranks
    return np.array(beside[met], np.int64).reshape(-1, ranks)


def _meeting(graph: TaskGraph, met: npt.NDArray[np.int64]) -> TaskGraph:
    count, ranks = met.shape
    graph, (word, nobody) = with_words(graph, HOST_WAIT, "")
    alike = np.ones(count, np.int32)
    none = np.full(count, NONE, np.int32)
    transfer = graph.tasks.duration[met].min(axis=1)
    more = TaskMeetings(
        transfer, none.astype(np.int64), alike * word, alike * nobody, alike * ranks, alike, none, alike > 0
    )
    graph, number = with_meetings(graph, more)
    meeting, duration = graph.tasks.meeting.copy(), graph.tasks.duration.copy()
    meeting[met] = number[:, None]
    duration[met] = 0
    graph = retime_graph(graph, duration=duration)
    return replace(graph, tasks=graph.tasks._replace(meeting=meeting), notes=(*graph.notes, _describe_meetings(count)))


def _describe_meetings(count: int) -> str:
    times = "once" if count == 1 else f"{count:,} times"
    return (
        f"Ranks stopped running ops at different times and resumed at the same moment, {times}: they are assumed to "
        "wait for each other there, although no collective was recorded."
    )
