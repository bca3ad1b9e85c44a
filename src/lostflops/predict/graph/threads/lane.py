"""The lane of the training thread: its stretches, the edges of its steps, and its waits, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lostflops.account.ledger.record import Codes, Ns, Record
from lostflops.predict.graph.tasks import NONE, TaskKind
from lostflops.predict.graph.threads.host import HostSpans, Stretches, stretches
from lostflops.predict.graph.threads.loader import Batches
from lostflops.predict.graph.threads.waits import Wait, after_edges
from lostflops.store.intervals import Intervals

if TYPE_CHECKING:
    from lostflops.account.ledger.windows import LedgerWindow

_SYNC, _STOP, _START, _STRETCH = range(4)
"""Order of tasks at the same instant: a wait ends, a step ends, the next step begins, then the work in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLane:
    """Tasks of the training thread, in order."""

    start: Ns
    """As recorded; for a wait, when it was over."""
    stop: Ns
    """As recorded; for a wait, when it was over."""
    kind: Codes
    place: Codes
    """Stretch of each task, NONE for marks and waits."""
    tiles: Stretches
    first: Codes
    """Marks that begin steps."""
    last: Codes
    """Marks that end steps."""
    waits: tuple[Codes, Codes]
    """Pairs of a task and a call that it waits for."""

    def at(self, times: Ns) -> Codes:
        """Return the last task that had begun at each time."""
        found: Codes = np.maximum(np.searchsorted(self.start, times, "right") - 1, 0)
        return found


def host_lane(
    record: Record, did: HostSpans, edges: LedgerWindow, held: tuple[list[Wait], Batches], seen: tuple[int, int]
) -> HostLane:
    """Build the lane from the first to the last time in `seen`; the calls and batches in `held` hold it up."""
    waited, loaded = held
    opens, closes = (np.array(times, np.int64) for times in ([w.start for w in waited], [w.stop for w in waited]))
    real = closes > opens
    loading = after_edges(edges.start, edges.stop, loaded.asked, loaded.taken), loaded.taken
    gone = Intervals.of(np.concatenate((opens[real], loading[0])), np.concatenate((closes[real], loading[1])))
    cuts = np.concatenate((edges.start, edges.stop, opens[real], closes[real], *loading))
    tiles = stretches(record, did, *seen, cuts)
    kept = np.flatnonzero(gone.within(tiles.start, tiles.start + 1) == 0)
    # What is due while an op runs is due when that has ended.
    ends = np.append(tiles.start[kept], seen[1])
    due = np.where(real, closes, ends[np.minimum(np.searchsorted(ends, closes), ends.size - 1)])
    times = np.concatenate((due, edges.stop, edges.start, tiles.start[kept]))
    sizes = np.array([len(waited), edges.stop.size, edges.start.size, kept.size])
    sort = np.repeat([_SYNC, _STOP, _START, _STRETCH], sizes)
    order = np.lexsort((sort, times))
    at = np.empty(order.size, np.int64)
    at[order] = np.arange(order.size)
    syncs, stops, starts = np.split(at, np.cumsum(sizes))[:3]
    place = np.concatenate((np.full(order.size - kept.size, NONE), kept))[order]
    timed = place >= 0
    kind, stop = np.where(sort == _SYNC, TaskKind.SYNC, TaskKind.MARK)[order], times[order]
    kind[timed], stop[timed] = tiles.kind[place[timed]], tiles.stop[place[timed]]
    waiting = np.repeat(syncs, [len(wait.calls) for wait in waited])
    awaited = np.array([call for wait in waited for call in wait.calls], np.int64)
    return HostLane(
        start=times[order],
        stop=stop,
        kind=kind,
        place=place,
        tiles=tiles,
        first=starts,
        last=stops,
        waits=(waiting, awaited),
    )
