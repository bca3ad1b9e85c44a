"""Batches that loader workers make in parallel with the training thread.

Only the training thread's waits for batches are recorded. If it waited, the batch was ready when the wait ended, and
the time between such batches is what all workers together need for the batches since. If it did not wait, the batch was
ready before: it took no longer than others, and no longer than keeps the wait at zero. With fewer than two waits, or
waits below a tenth of the time, the speed of workers is unknown, and the graph has no workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from lostflops.account.ledger.host_traits import Trait
from lostflops.account.ledger.record import Codes, Flags, Ns, Record

WORKERS: Final = "_MultiProcessingDataLoaderIter"
AHEAD: Final = 2
"""Fewest batches that workers make ahead: PyTorch's `prefetch_factor` for each worker."""
_WAITED: Final = 3
"""A batch was waited for if it took more than this many times as long as the quickest one, which was ready."""
_SHORTEST_WAIT: Final = 1_000_000
_READY: Final = 0.03
"""Longest time that taking a ready batch costs, as a part of the time from one batch to the next."""
_LEAST_OF_STEP: Final = 0.1
"""A wait is also longer than this part of the time from one batch to the next: taking a ready batch may cost
milliseconds where cores are shared."""


@dataclass(frozen=True, slots=True)
class Batches:
    """Batches that workers of a loader made, one row each."""

    asked: Ns
    """When the training thread asked for it."""
    taken: Ns
    """When the training thread began to take it."""
    got: Ns
    """When the training thread had it."""
    start: Ns
    """When workers began to make it."""
    stop: Ns
    """When workers had made it."""

    def __len__(self) -> int:
        return int(self.asked.size)


def batches(record: Record, first: int) -> Batches:
    """Return the batches that were asked for from `first` on; no batches if workers were not waited for."""
    host = record.host
    rows = host.having(Trait.DATA, [record.training_lane])
    named = np.array([WORKERS in name for name in record.names], np.bool_)
    rows = rows[named[host.name[rows]] & (host.start[rows] >= first)]
    rows = rows[np.argsort(host.start[rows], kind="stable")]
    asked, got = host.start[rows], host.stop[rows]
    apart = float(np.median(np.diff(got))) if got.size > 1 else 0.0
    # Where every batch was waited for, none tells what taking one costs.
    ready = int((got - asked).min(initial=round(max(_SHORTEST_WAIT, _READY * apart))))
    waited = got - asked > max(_WAITED * ready, _SHORTEST_WAIT, _LEAST_OF_STEP * apart)
    # One slow hand-over more than another tells nothing of how fast workers are.
    held = got.size > 0 and int((got - asked)[waited].sum()) >= _LEAST_OF_STEP * int(got[-1] - asked[0])
    usual = _usual(got, waited) if held else None
    if usual is None:
        none = np.empty(0, np.int64)
        return Batches(none, none, none, none, none)
    taken = np.where(waited, got - ready, asked)
    return Batches(asked, taken, got, *_estimate_worker_times(taken, got, waited, (usual, first)))


def _usual(got: Ns, waited: Flags) -> int | None:
    """Return the time per batch, from the first batch that was waited for to the last; None if fewer than two were.
    Workers that began together also end together, so after a wait for the first of them the others are ready.

    >>> _usual(np.array([5, 100, 110, 300]), np.array([False, True, False, True]))
    100
    """
    rows = np.flatnonzero(waited)
    return int(got[rows[-1]] - got[rows[0]]) // int(rows[-1] - rows[0]) if rows.size > 1 else None


def _estimate_worker_times(taken: Ns, got: Ns, waited: Flags, known: tuple[int, int]) -> tuple[Codes, Codes]:
    """Return when workers began and ended each batch, one after the other, and at most AHEAD of what was taken. `known`
    is the usual time of a batch and when the recording began: workers may have begun the first batch before that."""
    start, stop = np.empty_like(taken), np.empty_like(taken)
    usual, first = known
    free = max(int(taken[0]) - usual, first)
    for batch in range(taken.size):
        begin = max(free, int(got[batch - AHEAD])) if batch >= AHEAD else free
        end = int(taken[batch])
        free = max(begin, end if waited[batch] else min(begin + usual, end))
        start[batch], stop[batch] = begin, free
    return start, stop
