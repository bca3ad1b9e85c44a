"""Shares of events that run at once: every nanosecond is given to exactly one of them.

The shares sum to the time that any of the events covers, as integers.
"""

import numpy as np
import numpy.typing as npt

from lostflops.store.intervals import Intervals, Ns


def by_event(start: Ns, stop: Ns, inside: Intervals) -> Ns:
    """Return the time of each event within `inside`; of several at once, the first started gets the time.

    >>> by_event(np.array([0, 2]), np.array([4, 9]), Intervals.of([0], [8])).tolist()
    [4, 4]
    """
    if not start.size:
        return np.zeros(0, np.int64)
    order, begin, end = _turns(start, stop)
    shares = np.empty(start.size, np.int64)
    shares[order] = inside.within(begin, end)
    return shares


def split_by_event(start: Ns, stop: Ns, inside: Intervals) -> tuple[npt.NDArray[np.int64], Ns, Ns]:
    """Return the pieces of `inside` that `by_event` gives to events, in order of time: event, start and stop of each.

    >>> [found.tolist() for found in split_by_event(np.array([0, 2]), np.array([4, 9]), Intervals.of([0], [8]))]
    [[0, 1], [0, 4], [4, 8]]
    """
    order, begin, end = _turns(start, stop)
    held = end > begin
    order, begin, end = order[held], begin[held], end[held]
    # Turns may touch, and so may these pieces: no two of them are one.
    pieces = Intervals(begin, end) & inside
    return order[np.searchsorted(end, pieces.start, side="right")], pieces.start, pieces.stop


def _turns(start: Ns, stop: Ns) -> tuple[npt.NDArray[np.int64], Ns, Ns]:
    """Return the events in order of start, each with the time in which none before it runs."""
    order = np.argsort(start, kind="stable")
    reach = np.maximum.accumulate(stop[order])
    begin = np.concatenate((start[order][:1], np.maximum(start[order][1:], reach[:-1])))
    return order, begin, np.maximum(begin, stop[order])


def by_priority(start: Ns, stop: Ns, label: npt.NDArray[np.integer], labels: int, inside: Intervals) -> Ns:
    """Return the time of each label 0, 1, ... within `inside`; of several at once, the smallest label gets the time.

    >>> by_priority(np.array([0, 2]), np.array([4, 9]), np.array([1, 0]), 2, Intervals.of([0], [8])).tolist()
    [6, 2]
    """
    times = np.concatenate((start, stop))
    order = np.argsort(times, kind="stable")
    times = times[order]
    change = np.concatenate((np.ones(start.size, np.int32), np.full(start.size, -1, np.int32)))[order]
    which = np.concatenate((label, label))[order]
    length = inside.within(times[:-1], times[1:]) if times.size else times
    total = np.zeros(labels, np.int64)
    free = np.ones(length.size, np.bool_)
    for number in range(labels):
        running = np.cumsum(np.where(which == number, change, 0))[: length.size] > 0
        total[number] = length[running & free].sum()
        free &= ~running
    return total
