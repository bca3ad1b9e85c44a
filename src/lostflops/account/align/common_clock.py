"""The common clock: offset and drift of each rank's clock, and times converted to the reference's clock."""

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
    """Clocks of the ranks relative to the reference's, one entry per rank, in order."""

    ranks: Codes
    reference: int
    instant: int
    """Time on the reference's clock at which `offset` holds."""
    method: tuple[str, ...]
    offset: Ns
    """Added to a rank's time, gives the reference's time at `instant`, in ns."""
    uncertainty: Floats
    drift: Floats
    """Growth of `offset` per ns."""
    spread: Floats
    """Typical distance of the rank's ends from those of the ranks it met, in ns."""
    clock: Codes
    constraints: Codes

    def place(self, ranks: Codes) -> Codes:
        return np.searchsorted(self.ranks, ranks)

    @property
    def tied(self) -> Flags:
        return np.isfinite(self.uncertainty)

    def to_reference(self, place: Codes, times: Ns) -> Ns:
        """Convert times of the ranks at these places to the reference's clock."""
        offset = self.offset[place]
        grown = self.drift[place] * (times + offset - self.instant)
        return times + offset + np.round(grown).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Readings:
    """Clocks that were read and sent to another rank."""

    rank: Codes
    arrived: Ns
    """Time on the rank's clock at which the sender's clock showed `sent` or later."""
    sender: Codes
    sent: Ns
    """Time on the sender's clock."""

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
    """Return the median of each row without its unknown values (NaN); NaN if there are no others."""
    ordered = np.sort(values, axis=1)
    known = np.maximum((~np.isnan(values)).sum(axis=1), 1)
    row = np.arange(values.shape[0])
    return np.asarray((ordered[row, (known - 1) // 2] + ordered[row, known // 2]) / 2)
