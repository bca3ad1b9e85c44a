"""Blocks from before the window: how long they stayed, and how many fit the allocator's total."""

from __future__ import annotations

from typing import Final

import numpy as np

from lostflops.account.memory.blocks import BEFORE, Codes, Flags
from lostflops.account.memory.departures import refine_ends
from lostflops.account.memory.events import MemoryEvents, with_frees
from lostflops.account.memory.holdings import NEVER, RankHoldings
from lostflops.account.memory.pairing import BlockPairs

_GRAIN: Final = 512
"""PyTorch's caching allocators of devices give out multiples of this many bytes."""


def ends(events: MemoryEvents, early: RankHoldings) -> Codes:
    """Return the event by which each block is gone; the number of events for never.

    It was seen to be gone, or its place is allocated again.
    """
    seen = np.where(early.gone == NEVER, len(events), np.searchsorted(events.time, early.gone))
    grows = np.flatnonzero(events.change > 0)
    low, high = events.address[grows], events.address[grows] + events.change[grows]
    first = np.searchsorted(early.address + early.bytes, low, side="right")
    count = np.maximum(np.searchsorted(early.address, high, side="left") - first, 0)
    nth = np.arange(count.sum()) - np.repeat(count.cumsum() - count, count)
    taken = np.full(len(early), len(events), np.int64)
    np.minimum.at(taken, np.repeat(first, count) + nth, np.repeat(grows, count))
    return np.minimum(seen, taken)


def is_free_recorded(events: MemoryEvents, early: RankHoldings) -> Flags:
    """Return whether the first event at each block's address is a free: then it is the block's."""
    address, first = np.unique(events.address, return_index=True)
    if not address.size:
        return np.zeros(len(early), np.bool_)
    at = np.minimum(np.searchsorted(address, early.address), address.size - 1)
    found: Flags = (address[at] == early.address) & (events.change[first[at]] < 0)
    return found


def with_departures(events: MemoryEvents, early: RankHoldings) -> MemoryEvents:
    """Insert a free for each block that went without one.

    The CPU's allocator reports nothing of blocks that it gave out before the profiler started.
    """
    end = refine_ends(events, early, ends(events, early))
    gone = ((end < len(events)) | (early.gone != NEVER)) & ~is_free_recorded(events, early)
    going = early.rows(gone)
    time = np.append(events.time, NEVER)[end[gone]]
    return with_frees(events, np.minimum(time, going.gone), going.address, going.bytes, end[gone])


def staying(early: RankHoldings, end: Codes) -> BlockPairs:
    """Return blocks of these holdings, each up to an event."""
    return BlockPairs(
        born=np.full(len(early), BEFORE),
        died=end,
        bytes=early.bytes,
        address=early.address,
        freed=np.zeros(len(early), np.bool_),
    )


def round_sizes(size: Codes) -> Codes:
    """Round sizes up to what the allocator of a device gives out at least.

    >>> round_sizes(np.array([1, 512, 513])).tolist()
    [512, 512, 1024]
    """
    return -(-size // _GRAIN) * _GRAIN


def on_device(events: MemoryEvents, early: RankHoldings) -> BlockPairs:
    """Return blocks of holdings whose free was not recorded: for others, the free shows the block."""
    unseen = ~is_free_recorded(events, early)
    found = staying(early.rows(unseen), ends(events, early)[unseen])
    return BlockPairs(
        born=found.born, died=found.died, bytes=round_sizes(found.bytes), address=found.address, freed=found.freed
    )


def that_fit(found: BlockPairs, base: int) -> Flags:
    """Return which blocks to keep so that those from before hold at most `base`: recorded frees are believed first."""
    kept, early = np.ones(len(found), np.bool_), np.flatnonzero(found.born == BEFORE)
    early = early[np.lexsort((found.died[early], ~found.freed[early]))]
    kept[early] = found.bytes[early].cumsum() <= base
    return kept
