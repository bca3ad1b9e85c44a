"""Memory blocks of one device of one rank while a window was open, each with its owner, as columns."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lostflops.account.memory.owners import OWNERS

Ns = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

BEFORE = -1
"""`born` of a block that was there when the window opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Allocations of one device, one row each."""

    born: Codes
    """Event from which on it lives; `BEFORE` if that was before the window."""
    died: Codes
    """Event from which on it no longer lives; the number of events if that was after the window."""
    start: Ns
    """Time of `born`, or when the window opened."""
    stop: Ns
    """Time of `died`, or when the window closed."""
    bytes: Codes
    address: Codes
    owner: Codes
    """Place in `OWNERS`."""
    module: Codes
    """Module that allocated it, as a code of the memory's texts."""
    op: Codes
    """Op that allocated it, as a code of the memory's texts."""
    line: Codes
    """Source line that allocated it, as a code of the memory's texts."""
    phase: Codes
    """Place in `ledger.phases.PHASES`; -1 if it was allocated before the window."""
    step: Codes
    """-1 if it was allocated before the window."""

    def __len__(self) -> int:
        return int(self.bytes.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """Memory of one device of one rank; an event is an allocation or a free, in order."""

    rank: int
    device: str
    """Such as `cpu` or `cuda:0`."""
    opened: int
    closed: int
    time: Ns
    total: Codes
    """Bytes that the allocator had given out after each event."""
    base: int
    """Bytes that the allocator had given out when the window opened."""
    unknown: int
    """Bytes of `base` that belong to no block: they are unattributed throughout."""
    reserved: Codes
    """Bytes that the allocator held after each event; empty if that is not recorded."""
    blocks: Blocks
    texts: tuple[str, ...]
    """Texts of the codes, `""` first."""
    notes: tuple[str, ...] = ()
    """Gaps in what is known, in words."""
    drift: Codes = field(default_factory=lambda: np.empty(0, np.int64))
    """Bytes of each total in neither blocks nor `unknown`: unattributed, from lost events; empty if there are none."""

    def by_owner(self) -> Codes:
        """Return bytes of each owner (columns, as `OWNERS`) when the window opened and after each event (rows)."""
        found = np.zeros((self.time.size + 2, len(OWNERS)), np.int64)
        blocks = self.blocks
        np.add.at(found, (blocks.born + 1, blocks.owner), blocks.bytes)
        np.subtract.at(found, (blocks.died + 1, blocks.owner), blocks.bytes)
        found = found[:-1].cumsum(axis=0)
        found[:, -1] += self.unknown
        if self.drift.size:
            found[1:, -1] += self.drift
        return found

    def alive(self, event: int) -> Codes:
        """Return the rows of blocks that are there after this event; with `BEFORE`, before all events."""
        return np.flatnonzero((self.blocks.born <= event) & (self.blocks.died > event))

    @property
    def peak(self) -> int:
        """Event after which most was allocated, the first of equals; `BEFORE` if that was when the window opened."""
        if not self.total.size or int(self.total.max()) < self.base:
            return BEFORE
        return int(self.total.argmax())

    @property
    def peak_bytes(self) -> int:
        return self.base if self.peak == BEFORE else int(self.total[self.peak])

    def self_check(self) -> None:
        """Check that owners sum to what the allocator says, at every event."""
        sums = self.by_owner().sum(axis=1)
        assert sums[0] == self.base, f"owners hold {sums[0]} bytes of {self.base}"
        off = np.flatnonzero(sums[1:] != self.total)
        assert not off.size, f"owners do not sum to the total at {off.size} of {self.total.size} events"
