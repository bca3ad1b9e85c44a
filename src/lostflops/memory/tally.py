"""What the events of a device sum to, and what does not fit: blocks, the total after each event, losses in words.

On the CPU the profiler knows only what was allocated while it ran: the total is what the collector registered when the
window opened, and the events. On other devices the allocator tells its total with each event, and that holds: what
blocks do not account for is unattributed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from lostflops.memory.blocks import BEFORE, Codes
from lostflops.memory.buckets import Buckets
from lostflops.memory.events import NOWHERE, Events
from lostflops.memory.holdings import Holdings, from_before, none_held
from lostflops.memory.opening import ends, is_free_recorded, on_device, rounded, staying, that_fit, with_departures
from lostflops.memory.pairing import Pairs, explained, pair, sizes_as_keys
from lostflops.units import format_bytes


@dataclass(frozen=True, slots=True)
class Tally:
    events: Events
    pairs: Pairs
    total: Codes
    base: int
    unknown: int
    drift: Codes
    has_addresses: bool
    buckets: Buckets
    notes: tuple[str, ...]


def tally(events: Events, held: Holdings, buckets: Buckets, *, is_cpu: bool) -> Tally:
    """`buckets` were there throughout, nobody knows where."""
    has_addresses = bool((events.address != NOWHERE).all())
    is_told = not is_cpu and bool((events.total != NOWHERE).all())
    early = from_before(held if has_addresses else none_held())
    if is_told:
        return _by_totals(events, early, buckets, has_addresses)
    events = with_departures(events, early)
    found = _paired(events, has_addresses)
    left = (ends(events, early) == len(events)) & ~is_free_recorded(events, early)
    found = _joined(staying(early.rows(left), np.full(int(left.sum()), len(events))), found)
    found = _joined(_throughout(buckets.bytes, len(events)), found)
    held_bytes = found.held(len(events))
    base = int(held_bytes[0])
    notes = [*_losses(replace(found, lost_frees=0) if is_cpu else found, has_addresses)]
    if not is_cpu:
        notes.append("The allocator's totals are not recorded: the total is that of recorded blocks, a lower limit.")
    return Tally(events, found, held_bytes[1:], base, 0, held_bytes[:0], has_addresses, buckets, tuple(notes))


def _by_totals(events: Events, early: Holdings, buckets: Buckets, has_addresses: bool) -> Tally:
    base = int(events.total[0] - events.change[0])
    jump = np.diff(events.total, prepend=base) - events.change
    found = explained(_paired(events, has_addresses), jump)
    found = _joined(_joined(on_device(events, early), _throughout(rounded(buckets.bytes), len(events))), found)
    found = found.rows(that_fit(found, base))
    held = found.held(len(events))
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
    return Tally(events, found, events.total, base, unknown, drift, has_addresses, buckets, tuple(notes))


def _paired(events: Events, has_addresses: bool) -> Pairs:
    if has_addresses:
        return pair(events.address, events.change)
    found = pair(sizes_as_keys(events.change), events.change)
    nowhere = np.full(len(found), NOWHERE, np.int64)
    return Pairs(found.born, found.died, found.bytes, nowhere, found.freed)


def _throughout(size: Codes, events: int) -> Pairs:
    never, nowhere = np.full(size.size, events), np.full(size.size, NOWHERE)
    return Pairs(np.full(size.size, BEFORE), never, size, nowhere, np.zeros(size.size, np.bool_))


def _joined(first: Pairs, second: Pairs) -> Pairs:
    """`second` are the events' own blocks."""
    found = Pairs(
        np.concatenate((first.born, second.born)),
        np.concatenate((first.died, second.died)),
        np.concatenate((first.bytes, second.bytes)),
        np.concatenate((first.address, second.address)),
        np.concatenate((first.freed, second.freed)),
        second.lost_frees,
        second.lost_allocations,
    )
    return found.rows(np.argsort(found.born, kind="stable"))


def _losses(found: Pairs, has_addresses: bool) -> Iterator[str]:
    if not has_addresses:
        yield "Addresses of blocks are not recorded, so their owners are unknown."
    if found.lost_frees:
        yield f"{found.lost_frees} blocks were allocated where another block still was: its free is not recorded."
    if found.lost_allocations:
        yield f"{found.lost_allocations} frees are of blocks whose allocation is not recorded."
