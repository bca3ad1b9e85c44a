"""How much work of a rank's device is launched and not yet started.

Work is a kernel, a collective, a copy or a memset. It is in the queue from the start of the runtime call that launched
it, which has the same correlation, until it starts itself. Work without a recorded launch does not count. All kernels
of a CUDA graph enter the queue with the call that launches the graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from lostflops.store.run import Run

Numbers = npt.NDArray[np.int64]

_LAUNCHES: Final = """
    with calls as (
        select correlation, min(start) as launched from events
        where rank = {rank} and kind = 'runtime' and correlation >= 0 group by correlation
    )
    select launched, start from events join calls using (correlation)
    where rank = {rank} and kind in ('kernel', 'comm', 'memcpy', 'memset')"""


@dataclass(frozen=True, slots=True)
class QueueDepth:
    time: Numbers
    """Moments at which the depth changes, in order, on the clock of the rank's host."""
    depth: Numbers
    """Depth from each moment to the next; never negative."""
    launched: int
    """Number of kernels and copies with a recorded launch."""
    early: int
    """Number of those that start before their launch, because clocks of host and device differ: they are taken to
    start at once, and are never in the queue."""


def read_queue(run: Run, rank: int) -> QueueDepth:
    found = run.columns(_LAUNCHES.format(rank=int(rank)))
    return queue_depth(np.asarray(found["launched"], np.int64), np.asarray(found["start"], np.int64))


def queue_depth(launched: Numbers, start: Numbers) -> QueueDepth:
    """Return the depth over time of work that was launched and started at these times.

    >>> queue_depth(np.array([0, 2, 9]), np.array([5, 7, 8]))
    QueueDepth(time=array([0, 2, 5, 7]), depth=array([1, 2, 1, 0]), launched=3, early=1)
    """
    queued = start > launched
    times = np.concatenate((launched[queued], start[queued]))
    change = np.repeat(np.array([1, -1]), int(queued.sum()))
    order = np.argsort(times, kind="stable")
    time, first = np.unique(times[order], return_index=True)
    depth = np.cumsum(np.add.reduceat(change[order], first)) if time.size else np.zeros(0, np.int64)
    return QueueDepth(time, depth, launched.size, int((start < launched).sum()))
