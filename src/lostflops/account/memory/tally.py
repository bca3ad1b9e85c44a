"""Sums of a device's memory events: blocks, the total after each event, and what does not fit, in words.

On the CPU the profiler knows only what was allocated while it ran: the total is what the collector registered when the
window opened, and the events. On other devices the allocator reports its total with each event, and that total holds:
bytes that blocks do not account for are unattributed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from lostflops.account.memory.blocks import BEFORE, Codes
from lostflops.account.memory.buckets import Buckets
from lostflops.account.memory.events import NOWHERE, MemoryEvents
from lostflops.account.memory.holdings import RankHoldings, from_before, none_held
from lostflops.account.memory.opening import (
    ends,
    is_free_recorded,
    on_device,
    round_sizes,
    staying,
    that_fit,
    with_departures,
)
from lostflops.account.memory.pairing import BlockPairs, pair, repair_pairs, sizes_as_keys
from lostflops.core.units import format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    events: MemoryEvents
    pairs: BlockPairs
    total: Codes
    base: int
    unknown: int
    drift: Codes
    has_addresses: bool
    buckets: Buckets
    notes: tuple[str, ...]


def tally(events: MemoryEvents, held: RankHoldings, buckets: Buckets, *, is_cpu: bool) -> Tally:
    """Sum up the events of a device; `buckets` were there throughout, at unknown addresses."""
    has_addresses = bool((events.address != NOWHERE).all())
    is_told = not is_cpu and bool((events.total != NOWHERE).all())
    early = from_before(held if has_addresses else none_held())
    if is_told:
        return _by_totals(events, early, buckets, has_addresses)
    events = with_departures(events, early)
    found = _pair_blocks(events, has_addresses)
    left = (ends(events, early) == len(events)) & ~is_free_recorded(events, early)
    found = _concat_pairs(staying(early.rows(left), np.full(int(left.sum()), len(events))), found)
    found = _concat_pairs(_throughout(buckets.bytes, len(events)), found)
    held_bytes = found.sum_held_bytes(len(events))
    base = int(held_bytes[0])
    notes = [*_losses(replace(found, lost_frees=0) if is_cpu else found, has_addresses)]
    if not is_cpu:
        notes.append("The allocator's totals are not recorded: the total is that of recorded blocks, a lower limit.")
    return Tally(
        events=events,
        pairs=found,
        total=held_bytes[1:],
        base=base,
        unknown=0,
        drift=held_bytes[:0],
        has_addresses=has_addresses,
        buckets=buckets,
        notes=tuple(notes),
    )


def _by_totals(events: MemoryEvents, early: RankHoldings, buckets: Buckets, has_addresses: bool) -> Tally:
    base = int(events.total[0] - events.change[0])
    jump = np.diff(events.total, prepend=base) - events.change
    found = repair_pairs(_pair_blocks(events, has_addresses), jump)
    found = _concat_pairs(
        _concat_pairs(on_device(events, early), _throughout(round_sizes(buckets.bytes), len(events))), found
    )
    found = found.rows(that_fit(found, base))
    held = found.sum_held_bytes(len(events))
    unknown = base - int(held[0])
    drift = events.total - held[1:] - unknown
    notes = [*_losses(found, has_addresses)]
    if jump.any():
        lost = format_bytes(int(np.abs(jump).sum()))
        notes.append(
            f"The allocator's total jumps {np.count_nonzero(jump)} times, by {lost} in total: events are lost."
        )
    over = -int((drift + unknown).min())
    if over > 0:
        notes.append(f"Blocks exceed the allocator's total by up to {format_bytes(over)}, because frees are lost.")
    if not drift.any():
        drift = drift[:0]
    return Tally(
        events=events,
        pairs=found,
        total=events.total,
        base=base,
        unknown=unknown,
        drift=drift,
        has_addresses=has_addresses,
        buckets=buckets,
        notes=tuple(notes),
    )


def _pair_blocks(events: MemoryEvents, has_addresses: bool) -> BlockPairs:
    if has_addresses:
        return pair(events.address, events.change)
    found = pair(sizes_as_keys(events.change), events.change)
    nowhere = np.full(len(found), NOWHERE, np.int64)
    return BlockPairs(born=found.born, died=found.died, bytes=found.bytes, address=nowhere, freed=found.freed)


def _throughout(size: Codes, events: int) -> BlockPairs:
    never, nowhere = np.full(size.size, events), np.full(size.size, NOWHERE)
    return BlockPairs(
        born=np.full(size.size, BEFORE), died=never, bytes=size, address=nowhere, freed=np.zeros(size.size, np.bool_)
    )


def _concat_pairs(first: BlockPairs, second: BlockPairs) -> BlockPairs:
    """Join blocks; `second` are the events' own, and only they have losses."""
    found = BlockPairs(
        born=np.concatenate((first.born, second.born)),
        died=np.concatenate((first.died, second.died)),
        bytes=np.concatenate((first.bytes, second.bytes)),
        address=np.concatenate((first.address, second.address)),
        freed=np.concatenate((first.freed, second.freed)),
        lost_frees=second.lost_frees,
        lost_allocations=second.lost_allocations,
    )
    return found.rows(np.argsort(found.born, kind="stable"))


def _losses(found: BlockPairs, has_addresses: bool) -> Iterator[str]:
    if not has_addresses:
        yield "Addresses of blocks are not recorded, so their owners are unknown."
    if found.lost_frees:
        yield f"{found.lost_frees} blocks were allocated where another block still was: its free is not recorded."
    if found.lost_allocations:
        yield f"{found.lost_allocations} frees are of blocks whose allocation is not recorded."
