"""Blocks from allocations and frees: each free belongs to the allocation before it at the same address.

Whatever does not fit is counted. An address that is allocated again was freed in between. A free without an allocation
is that of a block from before the window, or its allocation was lost. If the allocator's totals are known, a jump of
the total by exactly the block's size shows when that happened.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from lostflops.account.memory.blocks import BEFORE, Codes, Flags

_MOST_JUMPS: Final = 1_000
"""If there are more, they are not explained one by one: then totals and events have little to do with each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPairs:
    """Blocks in order of birth, those from before the window first."""

    born: Codes
    died: Codes
    bytes: Codes
    address: Codes
    freed: Flags
    """Whether the free itself was recorded."""
    lost_frees: int = 0
    lost_allocations: int = 0

    def __len__(self) -> int:
        return int(self.born.size)

    def rows(self, chosen: Codes | Flags) -> BlockPairs:
        born, died, size, address = (column[chosen] for column in (self.born, self.died, self.bytes, self.address))
        return BlockPairs(
            born=born,
            died=died,
            bytes=size,
            address=address,
            freed=self.freed[chosen],
            lost_frees=self.lost_frees,
            lost_allocations=self.lost_allocations,
        )

    def sum_held_bytes(self, events: int) -> Codes:
        """Return the bytes of all blocks when the window opened and after each event."""
        found = np.zeros(events + 2, np.int64)
        np.add.at(found, self.born + 1, self.bytes)
        np.subtract.at(found, self.died + 1, self.bytes)
        return found[:-1].cumsum()


def pair(key: Codes, change: Codes) -> BlockPairs:
    """Return the blocks of events; `key` are their addresses, or keys in place of addresses.

    >>> found = pair(np.array([1, 2, 1, 3, 2]), np.array([40, 20, -40, -8, 24]))
    >>> list(zip(found.born.tolist(), found.died.tolist(), found.bytes.tolist()))
    [(-1, 3, 8), (0, 2, 40), (1, 4, 20), (4, 5, 24)]
    >>> found.lost_frees, found.lost_allocations
    (1, 0)
    """
    count = key.size
    order = np.argsort(key, kind="stable")
    grows, again = change[order] > 0, key[order][1:] == key[order][:-1]
    followed, follows = np.append(again, False)[:count], np.append(False, again)[:count]
    after, before = np.append(order[1:], count)[:count], np.append(False, grows[:-1])[:count]
    next_grows = np.append(grows[1:], False)[:count]
    opened = np.flatnonzero(grows)
    earlier = np.flatnonzero(~grows & ~follows)
    rows = np.concatenate((order[earlier], order[opened]))
    born = np.concatenate((np.full(earlier.size, BEFORE), order[opened]))
    died = np.concatenate((order[earlier], np.where(followed, after, count)[opened]))
    freed = np.concatenate((np.ones(earlier.size, np.bool_), (followed & ~next_grows)[opened]))
    found = BlockPairs(
        born=born,
        died=died,
        bytes=np.abs(change[rows]),
        address=key[rows],
        freed=freed,
        lost_frees=int((followed & next_grows)[opened].sum()),
        lost_allocations=int((~grows & follows & ~before).sum()),
    )
    return found.rows(np.argsort(born, kind="stable"))


def sizes_as_keys(change: Codes) -> Codes:
    """Return keys in place of unrecorded addresses: of blocks of one size, the last to come is the first to go.

    >>> sizes_as_keys(np.array([8, 8, -8, 4, -8])).tolist()
    [2, 3, 3, 0, 2]
    """
    if not change.size:
        return change
    size = np.abs(change)
    order = np.argsort(size, kind="stable")
    sign = np.sign(change[order])
    first = np.append(True, size[order][1:] != size[order][:-1])
    beginning = np.maximum.accumulate(np.where(first, np.arange(first.size), 0))
    after = sign.cumsum()
    level = np.where(sign > 0, after - 1, after) - (after - sign)[beginning]
    level -= level.min()
    found = np.empty_like(change)
    found[order] = (first.cumsum() - 1) * (level.max() + 1) + level
    return found


def summing_to(size: Codes, wanted: int) -> list[int]:
    """Return the places of one or two sizes that sum to `wanted`, the last that do; empty if there are none.

    >>> summing_to(np.array([4, 8, 4]), 4), summing_to(np.array([4, 8, 2]), 12), summing_to(np.array([4]), 8)
    ([2], [1, 0], [])
    """
    alone = np.flatnonzero(size == wanted)
    if alone.size:
        return [int(alone[-1])]
    for first in np.flatnonzero(np.isin(wanted - size, size))[::-1].tolist():
        second = np.flatnonzero(size[:first] == wanted - size[first])
        if second.size:
            return [first, int(second[-1])]
    return []


def repair_pairs(found: BlockPairs, jump: Codes) -> BlockPairs:
    """Move ends that were lost to where the total fell by the block's size.

    A block from before that is only known by its free is left out if the total had risen by its size: it was allocated
    while the window was open.
    """
    rises, falls = np.flatnonzero(jump > 0), np.flatnonzero(jump < 0)
    if not 0 < rises.size + falls.size <= _MOST_JUMPS:
        return found
    died, open_ends = found.died.copy(), np.flatnonzero(~found.freed)
    for place in falls[::-1].tolist():
        there = np.flatnonzero((found.born[open_ends] < place) & (found.died[open_ends] >= place))
        taken = there[summing_to(found.bytes[open_ends[there]], -int(jump[place]))]
        died[open_ends[taken]] = place
        open_ends = np.delete(open_ends, taken)
    kept, early = np.ones(len(found), np.bool_), np.flatnonzero(found.born == BEFORE)
    for place in rises.tolist():
        fits = (found.bytes[early] == jump[place]) & (found.died[early] > place)
        if fits.any():
            taken = np.flatnonzero(fits)[0]
            kept[early[taken]] = False
            early = np.delete(early, taken)
    lost = found.lost_allocations + int((~kept).sum())
    ended = BlockPairs(
        born=found.born,
        died=died,
        bytes=found.bytes,
        address=found.address,
        freed=found.freed,
        lost_frees=found.lost_frees,
        lost_allocations=lost,
    )
    return ended.rows(kept)
