"""The clock that all ranks are told by: how far each is from it, and how to read its stamps on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lostflops.account.align.calls import Codes, Flags, Ns
from lostflops.account.align.match import Channel, Matched

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """One entry per rank, in order. `offset` holds at `instant` on the reference's clock and grows by `drift` per ns;
    `spread` is how far the rank's ends typically lie from those of the ranks it met."""

    ranks: Codes
    reference: int
    instant: int
    method: tuple[str, ...]
    offset: Ns
    uncertainty: Floats
    drift: Floats
    spread: Floats
    clock: Codes
    constraints: Codes

    def place(self, ranks: Codes) -> Codes:
        return np.searchsorted(self.ranks, ranks)

    @property
    def tied(self) -> Flags:
        return np.isfinite(self.uncertainty)

    def to_reference(self, place: Codes, times: Ns) -> Ns:
        """Times of the ranks at these places, on the reference's clock."""
        offset = self.offset[place]
        grown = self.drift[place] * (times + offset - self.instant)
        return times + offset + np.round(grown).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Readings:
    """Clocks that were read and sent: at `arrived` on a rank's clock there was what `sent` shows on the sender's, or
    the sender's clock was past it already."""

    rank: Codes
    arrived: Ns
    sender: Codes
    sent: Ns

    @classmethod
    def none(cls) -> Readings:
        return cls(*(np.empty(0, np.int64) for _ in range(4)))


class ClockMembers:
    """Channels with the places of their members among the ranks."""

    def __init__(self, matched: Matched, ranks: Codes) -> None:
        self.all = [(channel, np.searchsorted(ranks, channel.members)) for channel in matched.channels]

    def __iter__(self) -> Iterator[tuple[Channel, Codes]]:
        return iter(self.all)


def middle_of(values: Floats) -> Floats:
    """Median of each row without its unknown values; unknown where there is none."""
    ordered = np.sort(values, axis=1)
    known = np.maximum((~np.isnan(values)).sum(axis=1), 1)
    row = np.arange(values.shape[0])
    return np.asarray((ordered[row, (known - 1) // 2] + ordered[row, known // 2]) / 2)
