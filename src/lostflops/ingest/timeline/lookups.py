"""The step, annotation and module of an instant or a launch: pure lookups on sorted arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lostflops.ingest.common.columns import NULL32, Array
from lostflops.ingest.timeline.recording import StepSpan
from lostflops.store.row_groups import group_rows

Ns = npt.NDArray[np.int64]
Codes = npt.NDArray[np.uint32]
Indices = npt.NDArray[np.int64]
NEVER = 1 << 63
_NOTHING = np.zeros(0, np.int64), np.zeros(0, np.uint32)


class StepLookup:
    """Steps of one rank in order of time; of two with the same number the first is kept."""

    def __init__(self, spans: Sequence[StepSpan]) -> None:
        first: dict[int, StepSpan] = {}
        for span in sorted(spans, key=lambda s: (s.start, s.stop)):
            first.setdefault(span.step, span)
        self.spans = sorted(first.values(), key=lambda s: s.start)
        self.repeated = len(spans) - len(self.spans)
        self._start = np.array([s.start for s in self.spans], np.int64)
        self._stop = np.array([s.stop for s in self.spans], np.int64)
        self._step = np.array([s.step for s in self.spans], np.int32)

    def missing(self) -> int:
        """Return how many numbers are missing between the first and the last step."""
        if not self.spans:
            return 0
        return int(self._step.max() - self._step.min()) + 1 - len(self.spans)

    def at(self, times: Ns) -> npt.NDArray[np.int32]:
        """Return the step running at each time, or null."""
        if not self.spans:
            return np.full(times.size, NULL32, np.int32)
        index = np.searchsorted(self._start, times, side="right") - 1
        inside = (index >= 0) & (times < self._stop[index])
        return np.where(inside, self._step[index], NULL32).astype(np.int32)


class AnnotationLookup:
    """Innermost annotation on each lane at any time, as a step function."""

    def __init__(self, batches: Sequence[tuple[Array, ...]]) -> None:
        self._by_lane: dict[int, tuple[Ns, Codes]] = {}
        self.parents = np.zeros(0, np.uint32)
        """Code of the annotation around each annotation, in the order in which they were passed."""
        if not batches:
            return
        lane, start, stop, name = (np.concatenate(column) for column in zip(*batches, strict=True))
        self.parents = np.zeros(lane.size, np.uint32)
        for number, rows in group_rows(lane):
            times, index, around = innermost(start[rows], stop[rows])
            codes = np.concatenate((name[rows], [0])).astype(np.uint32)
            self._by_lane[number] = times, codes[index]
            self.parents[rows] = codes[around]

    def at(self, lanes: npt.NDArray[np.int32], start: Ns) -> Codes:
        """Return the code of the innermost annotation on each lane at each time, or 0."""
        found = np.zeros(lanes.size, np.uint32)
        for number, rows in group_rows(lanes) if self._by_lane else ():
            times, codes = self._by_lane.get(number, _NOTHING)
            if times.size:  # annotations that take no time are around nothing
                index = np.searchsorted(times, start[rows], side="right") - 1
                found[rows] = np.where(index >= 0, codes[index], 0)
        return found


def innermost(start: Ns, stop: Ns) -> tuple[Ns, Indices, Indices]:
    """Return when the innermost interval changes, its index from then on, and the interval around each interval.

    Innermost is, of the intervals at a time, the one that started last, and of these the one that ends first; they may
    cross. -1 means none.

    >>> times, inner, around = innermost(np.array([0, 2]), np.array([9, 4]))
    >>> times.tolist(), inner.tolist(), around.tolist()
    ([0, 2, 4, 9], [0, 1, 0, -1], [-1, 0])
    """
    changes: dict[int, int] = {}
    around = np.full(start.size, -1, np.int64)
    stack: list[tuple[int, int]] = []

    def leave_until(now: int) -> None:
        while stack and stack[-1][0] <= now:
            left, _ = stack.pop()
            while stack and stack[-1][0] <= left:
                stack.pop()
            changes[left] = stack[-1][1] if stack else -1

    for own in np.lexsort((-stop, start)).tolist():
        begin, end = int(start[own]), int(stop[own])
        leave_until(begin)
        if end > begin:
            around[own] = stack[-1][1] if stack else -1
            stack.append((end, own))
            changes[begin] = own
        elif stack:
            around[own] = stack[-1][1]
    leave_until(NEVER)
    return np.array(list(changes), np.int64), np.array(list(changes.values()), np.int64), around


class LaunchMap:
    """Step, annotation and module of each launch, found by correlation; twenty bytes per launch.

    Launches are added in the order of the file, which is nearly that of their correlations.
    """

    def __init__(self, count: int) -> None:
        self._correlation = np.empty(count, np.int64)
        self._step = np.empty(count, np.int32)
        self._annotation = np.empty(count, np.uint32)
        self._module = np.zeros(count, np.uint32)
        self._filled = 0

    def add(self, correlation: Ns, step: npt.NDArray[np.int32], annotation: Codes, module: Codes | None) -> None:
        own = slice(self._filled, self._filled + correlation.size)
        self._correlation[own], self._step[own], self._annotation[own] = correlation, step, annotation
        if module is not None:
            self._module[own] = module
        self._filled = own.stop

    def sort(self) -> None:
        """Sort by correlation; call it after the last `add` and before the first `find`."""
        if bool((self._correlation[1:] >= self._correlation[:-1]).all()):
            return
        order = np.argsort(self._correlation, kind="stable")
        for values in (self._correlation, self._step, self._annotation, self._module):
            values[:] = values[order]

    def find(self, correlation: Ns) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int32], Codes, Codes]:
        """Return whether each correlation has a launch, and step, annotation and module of its first launch."""
        index = np.searchsorted(self._correlation, correlation)
        index[index == self._filled] = 0
        if self._filled == 0:
            none = np.zeros(correlation.size, np.uint32)
            return none > 0, np.full(correlation.size, NULL32, np.int32), none, none
        known = self._correlation[index] == correlation
        step = np.where(known, self._step[index], NULL32).astype(np.int32)
        annotation, module = (
            np.where(known, codes[index], 0).astype(np.uint32) for codes in (self._annotation, self._module)
        )
        return known, step, annotation, module
