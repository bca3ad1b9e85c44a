"""Interval algebra in integer nanoseconds: union, intersection, difference, gaps.

An `Intervals` is a set of time: half-open [start, stop), sorted, disjoint, never touching.
Everything is vectorised; nothing here knows what an event is.

>>> busy = Intervals.of([0, 4, 10], [6, 8, 12])
>>> busy
Intervals([0, 8), [10, 12))
>>> busy.total, (busy - Intervals.of([1], [11])).total, busy.gaps(0, 20)
(10, 2, Intervals([8, 10), [12, 20)))
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Ns = npt.NDArray[np.int64]


class Intervals:
    """A set of time; build it with `of`, combine it with `|`, `&`, `-`."""

    __slots__ = ("start", "stop")

    start: Final[Ns]
    stop: Final[Ns]

    def __init__(self, start: Ns, stop: Ns) -> None:
        """Take arrays that are sorted, disjoint and not touching; `of` accepts any."""
        self.start = start
        self.stop = stop

    @classmethod
    def of(cls, start: npt.ArrayLike, stop: npt.ArrayLike) -> Intervals:
        """Return the union of [start, stop) pairs in any order; empty and reversed pairs contain no time."""
        starts = np.asarray(start, dtype=np.int64)
        stops = np.asarray(stop, dtype=np.int64)
        if starts.shape != stops.shape or starts.ndim != 1:
            raise ValueError(f"starts and stops must be two lists of one length, not {starts.shape} and {stops.shape}")
        held = stops > starts
        starts, stops = starts[held], stops[held]
        if starts.size == 0:
            return cls(starts, stops)
        order = np.argsort(starts, kind="stable")
        starts, reach = starts[order], np.maximum.accumulate(stops[order])
        opens = np.concatenate(([True], starts[1:] > reach[:-1]))
        closes = np.concatenate((opens[1:], [True]))
        return cls(starts[opens], reach[closes])

    @classmethod
    def empty(cls) -> Intervals:
        return cls(np.empty(0, np.int64), np.empty(0, np.int64))

    @property
    def total(self) -> int:
        """Length of the set."""
        return int((self.stop - self.start).sum())

    def __or__(self, other: Intervals) -> Intervals:
        if not self.start.size or not other.start.size:
            return self if self.start.size else other
        return Intervals.of(np.concatenate((self.start, other.start)), np.concatenate((self.stop, other.stop)))

    def __and__(self, other: Intervals) -> Intervals:
        few, many = (self, other) if self.start.size <= other.start.size else (other, self)
        if not few.start.size:
            return few
        # Both are in order: each of the few meets a stretch of the many. No two pieces touch, for neither set does.
        first = np.searchsorted(many.stop, few.start, side="right")
        count = np.searchsorted(many.start, few.stop) - first
        before = np.cumsum(count) - count
        mine = np.repeat(np.arange(count.size), count)
        theirs = np.arange(mine.size) + (first - before)[mine]
        return Intervals(
            np.maximum(few.start[mine], many.start[theirs]),
            np.minimum(few.stop[mine], many.stop[theirs]),
        )

    def __sub__(self, other: Intervals) -> Intervals:
        if not self.start.size or not other.start.size:
            return self
        return self & other.gaps(int(self.start[0]), int(self.stop[-1]))

    def gaps(self, start: int, stop: int) -> Intervals:
        """Return the parts of [start, stop) that are not in the set."""
        inside = self.clip(start, stop)
        edges = np.concatenate(([start], inside.stop)), np.concatenate((inside.start, [stop]))
        held = edges[1] > edges[0]
        return Intervals(edges[0][held], edges[1][held])

    def clip(self, start: int, stop: int) -> Intervals:
        """Return the part of the set in [start, stop)."""
        if stop <= start:
            return Intervals.empty()
        held = slice(np.searchsorted(self.stop, start, side="right"), np.searchsorted(self.start, stop))
        return Intervals(np.maximum(self.start[held], start), np.minimum(self.stop[held], stop))

    def within(self, start: Ns, stop: Ns) -> Ns:
        """Return how much of each [start, stop) is in the set.

        >>> Intervals.of([0, 10], [4, 20]).within(np.array([2, 5]), np.array([12, 9])).tolist()
        [4, 0]
        """
        if not self.start.size:
            return np.zeros(start.size, np.int64)
        elapsed = np.concatenate(([0], np.cumsum(self.stop - self.start)))
        return self._before(stop, elapsed) - self._before(start, elapsed)

    def _before(self, times: Ns, elapsed: Ns) -> Ns:
        """Return how much of the set is before each time; `elapsed` is how much is before each of its intervals."""
        opened = np.searchsorted(self.start, times, side="right")
        ahead = np.where(opened > 0, np.maximum(self.stop[opened - 1] - times, 0), 0)
        return elapsed[opened] - ahead

    def __len__(self) -> int:
        return int(self.start.size)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Intervals):
            return NotImplemented
        return np.array_equal(self.start, other.start) and np.array_equal(self.stop, other.stop)

    __hash__ = None  # type: ignore[assignment]  # arrays inside: compare, do not key on it

    def __repr__(self) -> str:
        shown = [f"[{a}, {b})" for a, b in zip(self.start[:8].tolist(), self.stop[:8].tolist(), strict=True)]
        if len(self) > len(shown):
            shown.append(f"... {len(self)} in all")
        return f"Intervals({', '.join(shown)})"
