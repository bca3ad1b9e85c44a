"""Blocks of memory of one device of one rank while a window was open, each with its owner, as columns of numbers."""

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
    """A row is one allocation. It lives from event `born` up to and without event `died`; `BEFORE` and the number of
    events where that was outside of the window. `start` and `stop` are the times of those, those of the window where
    they were outside. `owner` is a place in `OWNERS`; `module`, `op` and `line` are codes of the texts of the memory it
    belongs to, of where it was allocated; `phase` is a place in `ledger.phases.PHASES`, -1 where it was allocated
    before the window, as is `step`."""

    born: Codes
    died: Codes
    start: Ns
    stop: Ns
    bytes: Codes
    address: Codes
    owner: Codes
    module: Codes
    op: Codes
    line: Codes
    phase: Codes
    step: Codes

    def __len__(self) -> int:
        return int(self.bytes.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """One device of one rank. An event is an allocation or a free, in order; `total` is what the allocator had given
    out after each, and `base` when the window opened. `unknown` are the bytes of `base` that belong to no block: they
    are unattributed throughout. `reserved` is what the allocator held after each event, empty where it does not tell.
    `texts` are what codes stand for, `""` the first. `notes` say what is not known, in words."""

    rank: int
    device: str
    """Such as `cpu` or `cuda:0`."""
    opened: int
    closed: int
    time: Ns
    total: Codes
    base: int
    unknown: int
    reserved: Codes
    blocks: Blocks
    texts: tuple[str, ...]
    notes: tuple[str, ...] = ()
    drift: Codes = field(default_factory=lambda: np.empty(0, np.int64))
    """Bytes of each total that neither blocks nor `unknown` account for, as events were lost: they are unattributed.
    Empty where there are none."""

    def by_owner(self) -> Codes:
        """Bytes of each owner (columns, as `OWNERS`) when the window opened and after each event (rows)."""
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
        """Rows of blocks that are there after this event; before all of them with `BEFORE`."""
        return np.flatnonzero((self.blocks.born <= event) & (self.blocks.died > event))

    @property
    def peak(self) -> int:
        """The event after which most was allocated, the first of equals; `BEFORE` where that was when it opened."""
        if not self.total.size or int(self.total.max()) < self.base:
            return BEFORE
        return int(self.total.argmax())

    @property
    def peak_bytes(self) -> int:
        return self.base if self.peak == BEFORE else int(self.total[self.peak])

    def self_check(self) -> None:
        """That it closes: owners sum to what the allocator says, at every event."""
        sums = self.by_owner().sum(axis=1)
        assert sums[0] == self.base, f"owners hold {sums[0]} bytes of {self.base}"
        off = np.flatnonzero(sums[1:] != self.total)
        assert not off.size, f"owners do not sum to the total at {off.size} of {self.total.size} events"
