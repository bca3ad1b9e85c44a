"""Nesting of the spans of one lane.

Spans of a lane nest: an op that was called by another starts and ends inside it. Everything is vectorised.
"""

import numpy as np
import numpy.typing as npt

Ns = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int64]


class Nest:
    """The spans of one lane, to find the innermost one around an instant.

    >>> nest = Nest(np.array([0, 2, 20]), np.array([10, 4, 30]))
    >>> nest.innermost(np.array([1, 3, 4, 15, 29])).tolist()
    [0, 1, 0, -1, 2]
    """

    def __init__(self, start: Ns, stop: Ns) -> None:
        self._order = np.lexsort((-stop, start))
        self._start, self._stop = start[self._order], stop[self._order]
        self._parent = _parents(self._start, self._stop)

    def innermost(self, times: Ns) -> Indices:
        """Return the index of the last-started span that holds each time, or -1."""
        found = np.searchsorted(self._start, times, side="right") - 1
        climbing = np.flatnonzero(found >= 0)
        while climbing.size:
            climbing = climbing[self._stop[found[climbing]] <= times[climbing]]
            found[climbing] = self._parent[found[climbing]]
            climbing = climbing[found[climbing] >= 0]
        return self._restore_order(found)

    def parents(self) -> Indices:
        """Return the index of the span around each span, or -1."""
        result = np.empty_like(self._order)
        result[self._order] = self._restore_order(self._parent)
        return result

    def _restore_order(self, positions: Indices) -> Indices:
        if not self._order.size:
            return np.full(positions.size, -1, np.int64)
        return np.where(positions >= 0, self._order[positions], -1)


def _parents(start: Ns, stop: Ns) -> Indices:
    """Return the nearest span before each that ends no earlier, and not where it starts; spans are in order of start.

    Every span first points to the one before it. A span that points to one that ends too early may take over where that
    one points: spans in between end earlier still. Each round doubles the distance covered.
    """
    parent = np.arange(stop.size, dtype=np.int64) - 1
    wrong = np.flatnonzero(parent >= 0)
    while wrong.size:
        ends = stop[parent[wrong]]
        wrong = wrong[(ends < stop[wrong]) | (ends <= start[wrong])]
        parent[wrong] = parent[parent[wrong]]
        wrong = wrong[parent[wrong] >= 0]
    return parent
