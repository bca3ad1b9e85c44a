"""The peak against batch size: each moment of a step has a line by owner, and the highest of the moments is the peak.

A single line through peaks bends where another moment becomes the highest, such as the optimizer's step at a small
batch and the begin of the backward pass at a large one. Lines by moment do not. Skyline (Yu, Grossman, Pekhimenko,
UIST 2020) fits one line to peaks of whole runs.
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
"""By what part of itself a measured peak may be missed by the lines of the other sizes."""
LEAST: Final = 0.002
"""By what part of itself a predicted peak may be off at least: allocators round, and small tensors come and go."""
_MOST: Final = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Height:
    """The peak at a batch size; the interval is None where nothing was left to test the lines with."""

    batch: int
    bytes: int
    low: int | None
    high: int | None
    moment: Moment
    owners: dict[Owner, int]


@dataclass(frozen=True, slots=True)
class _PeakLines:
    """`fixed` and `each` are bytes by moment and owner."""

    fixed: Heights
    each: Heights

    def owners(self, batch: float) -> Heights:
        """By moment. No owner holds less than nothing, as a line may say far from the sizes that it goes through; what
        is unattributed does where blocks exceed the allocator's totals."""
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
    """`error` is by what part of itself the worst measured peak is missed by the lines through the other sizes; None
    with two sizes, which any line goes through."""

    sizes: tuple[int, ...]
    measured: tuple[int, ...]
    moments: tuple[Moment, ...]
    lines: _PeakLines
    without: tuple[_PeakLines, ...]
    """Those of all sizes but one."""
    error: float | None

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
        """Bytes that are there at any size and bytes for each sample, by owner, of the moment of the peak there."""
        row = int(self.lines.totals(batch).argmax())
        return [
            (owner, round(float(self.lines.fixed[row, code])), float(self.lines.each[row, code]))
            for code, owner in enumerate(OWNERS)
        ]

    def largest(self, room: int, *, is_sure: bool) -> int | None:
        """The largest batch whose peak is at most `room`, by the high end of intervals if `is_sure`; None where the
        peak does not grow, 0 where not even one sample has room."""

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
    """Sizes ascend, each with the memory of the same rank and device."""
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
    """Least squares; through both where there are two."""
    off = batches - batches.mean()
    each = np.einsum("s,mso->mo", off, heights) / (off @ off)
    return _PeakLines(heights.mean(axis=1) - each * batches.mean(), each)
