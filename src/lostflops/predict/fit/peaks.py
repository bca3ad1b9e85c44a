"""Peak memory against batch size: each moment of a step has a line by owner, and the highest moment is the peak.

A single line through peaks bends where another moment becomes the highest, such as the optimizer's step at a small
batch and the start of the backward pass at a large one. Lines by moment do not. Skyline (Yu, Grossman, Pekhimenko, UIST
2020) fits one line to peaks of whole runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from lostflops.account.memory.blocks import RankMemory
from lostflops.account.memory.owners import OWNERS, Owner
from lostflops.predict.fit.heights import Heights, Moment, align_heights

LINEAR: Final = 0.05
"""The peak is linear if the lines of the other sizes miss no measured peak by more than this part."""
LEAST: Final = 0.002
"""A predicted peak may be off by at least this part: allocators round, and small tensors come and go."""
_MOST: Final = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Height:
    """The peak at a batch size."""

    batch: int
    bytes: int
    low: int | None
    """Low end of the interval; None if no size was left to test the lines with."""
    high: int | None
    """High end of the interval; None as for `low`."""
    moment: Moment
    owners: dict[Owner, int]


@dataclass(frozen=True, slots=True)
class _PeakLines:
    """Bytes as lines over the batch size, by moment and owner."""

    fixed: Heights
    """Bytes at any batch size."""
    each: Heights
    """Bytes per sample."""

    def owners(self, batch: float) -> Heights:
        """Return the bytes by moment and owner. No owner gets less than zero, as a line may give far from the measured
        sizes; the unattributed part may be negative, because blocks can exceed the allocator's totals."""
        found: Heights = self.fixed + self.each * batch
        found[:, :-1] = np.maximum(found[:, :-1], 0)
        return found

    def totals(self, batch: float) -> Heights:
        found: Heights = self.owners(batch).sum(axis=1)
        return found

    def peak(self, batch: float) -> float:
        return float(self.totals(batch).max())


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """The peak as a function of the batch size."""

    sizes: tuple[int, ...]
    measured: tuple[int, ...]
    moments: tuple[Moment, ...]
    lines: _PeakLines
    without: tuple[_PeakLines, ...]
    """Lines fitted to all sizes but one."""
    error: float | None
    """Part by which the lines through the other sizes miss the worst measured peak; None with two sizes, because a line
    always fits two."""

    @property
    def is_linear(self) -> bool:
        return self.error is not None and self.error <= LINEAR

    def at(self, batch: int) -> Height:
        by_moment = self.lines.owners(batch)
        highest = int(by_moment.sum(axis=1).argmax())
        owners = {owner: round(float(size)) for owner, size in zip(OWNERS, by_moment[highest], strict=True)}
        low = high = None
        if self.error is not None:
            others = [lines.peak(batch) for lines in (self.lines, *self.without)]
            wider = max(self.error, LEAST)
            low, high = round(min(others) * (1 - wider)), round(max(others) * (1 + wider))
        return Height(
            batch=batch, bytes=sum(owners.values()), low=low, high=high, moment=self.moments[highest], owners=owners
        )

    def line(self, batch: int) -> list[tuple[Owner, int, float]]:
        """Return by owner the fixed bytes and the bytes per sample, at the moment of the peak for this batch size."""
        row = int(self.lines.totals(batch).argmax())
        return [
            (owner, round(float(self.lines.fixed[row, code])), float(self.lines.each[row, code]))
            for code, owner in enumerate(OWNERS)
        ]

    def largest(self, room: int, *, is_sure: bool) -> int | None:
        """Return the largest batch whose peak is at most `room`, using the high end of intervals if `is_sure`; None if
        the peak does not grow, 0 if not even one sample fits."""

        def fits(batch: int) -> bool:
            height = self.at(batch)
            return (height.high if is_sure and height.high is not None else height.bytes) <= room

        if not fits(1):
            return 0
        good, bad = 1, 2
        while fits(bad):
            good, bad = bad, 2 * bad
            if bad > _MOST:
                return None
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if fits(middle) else (good, middle)
        return good


def peaks(sizes: Sequence[int], memories: Sequence[RankMemory]) -> Peaks:
    """Fit the peaks; sizes ascend, each with the memory of the same rank and device."""
    found = align_heights(memories)
    batches = np.array(sizes, np.float64)
    measured = np.array([memory.peak_bytes for memory in memories])
    everything = np.arange(len(sizes))
    without, error = [], None
    if len(sizes) > 2:
        missed = []
        for left in everything:
            kept = everything[everything != left]
            without.append(_lines(batches[kept], found.owners[:, kept]))
            missed.append(abs(without[-1].peak(batches[left]) / measured[left] - 1))
        error = float(max(missed))
    lines = _lines(batches, found.owners)
    return Peaks(
        sizes=tuple(sizes),
        measured=tuple(measured.tolist()),
        moments=found.moments,
        lines=lines,
        without=tuple(without),
        error=error,
    )


def _lines(batches: Heights, heights: Heights) -> _PeakLines:
    """Fit lines by least squares; with two sizes they go through both."""
    off = batches - batches.mean()
    each = np.einsum("s,mso->mo", off, heights) / (off @ off)
    return _PeakLines(heights.mean(axis=1) - each * batches.mean(), each)
