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
    order = np.argsort(start, kind="stable")
    reach = np.maximum.accumulate(stop[order])
    own_start = np.maximum(start[order][1:], reach[:-1])
    shares = np.empty(start.size, np.int64)
    begin = np.concatenate((start[order][:1], own_start))
    shares[order] = inside.within(begin, np.maximum(begin, stop[order]))
    return shares


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
