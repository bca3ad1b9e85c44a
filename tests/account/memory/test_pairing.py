"""Random streams of allocations and frees, whole and with losses, against a walk over them in plain Python."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lostflops.account.memory.blocks import BEFORE
from lostflops.account.memory.buckets import NONE
from lostflops.account.memory.events import MemoryEvents
from lostflops.account.memory.holdings import NEVER, RankHoldings, none_held
from lostflops.account.memory.owners import CODE, Owner
from lostflops.account.memory.pairing import pair, sizes_as_keys
from lostflops.account.memory.tally import tally

SIZES = (512, 1_024, 4_096)


@st.composite
def streams(draw, most=40):
    """(address, change) as an allocator gives out: what is there at the beginning, and the events."""
    places = st.integers(1, 8).map(lambda place: place * 10_000)
    early = draw(st.dictionaries(places, st.sampled_from(SIZES), max_size=5))
    live, events = dict(early), []
    for _ in range(draw(st.integers(0, most))):
        address = draw(places)
        if address in live:
            events.append((address, -live.pop(address)))
        else:
            live[address] = draw(st.sampled_from(SIZES))
            events.append((address, live[address]))
    return early, events


def as_events(rows, base, kept=None):
    """Totals are those of the whole stream, also where only some of its events are kept."""
    address, change = np.array(rows, np.int64).reshape(-1, 2).T
    total, none = base + change.cumsum(), np.full(address.size, -1, np.int64)
    whole = MemoryEvents(np.arange(address.size) * 10, none, none, address, change, total, none, none)
    return whole if kept is None else whole.rows(np.flatnonzero(kept))


def walked(rows):
    """(born, died, bytes, address) of each block, by walking."""
    live, found = {}, []
    for event, (address, change) in enumerate(rows):
        if change > 0:
            if address in live:
                found.append((*live.pop(address), event, address))
            live[address] = (event, change)
        elif address in live:
            found.append((*live.pop(address), event, address))
        elif all(other[3] != address for other in found):
            found.append((BEFORE, -change, event, address))
    found += [(*known, len(rows), address) for address, known in live.items()]
    return sorted((born, died, size, address) for born, size, died, address in found)


@settings(max_examples=150, deadline=None)
@given(streams(), st.data())
def test_each_free_ends_the_block_that_was_at_its_address(stream, data):
    rows = stream[1]
    kept = data.draw(st.lists(st.integers(0, 9).map(bool), min_size=len(rows), max_size=len(rows)))
    rows = [row for row, is_kept in zip(rows, kept, strict=True) if is_kept]
    address, change = np.array(rows, np.int64).reshape(-1, 2).T
    found = pair(address, change)
    columns = (found.born, found.died, found.bytes, found.address)
    assert sorted(zip(*(column.tolist() for column in columns), strict=True)) == walked(rows)


@settings(max_examples=150, deadline=None)
@given(streams())
def test_on_a_device_a_whole_stream_leaves_nothing_unaccounted(stream):
    early, rows = stream
    if not rows:
        return
    base = sum(early.values()) + 7 * 512
    found = tally(as_events(rows, base), none_held(), NONE, is_cpu=False)
    freed = {address for address, change in rows if change < 0} & early.keys()
    freed = {address for address in freed if next(change for other, change in rows if other == address) < 0}
    assert found.base == base
    assert found.unknown == base - sum(early[address] for address in freed)
    assert not found.drift.size
    assert not found.notes
    assert found.total.tolist() == (found.unknown + found.pairs.sum_held_bytes(len(rows))[1:]).tolist()


@settings(max_examples=300, deadline=None)
@given(streams(), st.data())
def test_on_a_device_it_closes_whatever_was_lost(stream, data):
    early, rows = stream
    base = sum(early.values())
    kept = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    events = as_events(rows, base, kept)
    if not len(events):
        return
    found = tally(events, none_held(), NONE, is_cpu=False)
    held = found.pairs.sum_held_bytes(len(events))
    drift = found.drift if found.drift.size else np.zeros(len(events), np.int64)
    assert found.unknown >= 0
    assert held[0] + found.unknown == found.base
    assert (held[1:] + found.unknown + drift).tolist() == events.total.tolist() == found.total.tolist()
    jumps = np.diff(events.total, prepend=found.base) - events.change
    assert any("jumps" in note for note in found.notes) == bool(jumps.any())


@settings(max_examples=150, deadline=None)
@given(streams(), st.data())
def test_on_a_cpu_the_total_is_what_was_registered_and_the_events(stream, data):
    """The profiler tells nothing of the free of a block from before; the collector sees it gone some time later."""
    early, rows = stream
    if not rows:
        return
    truth, live, seen, gone, recorded = [], dict(early), dict(early), {}, []
    for event, (address, change) in enumerate(rows):
        if change < 0 and address in seen:
            gone[address] = event * 10 + data.draw(st.integers(0, 25))
            del live[address], seen[address]
            continue
        live.pop(address, None) if change < 0 else live.update({address: change})
        recorded.append((event, address, change))
        late = sum(early[one] for one, time in gone.items() if not _is_over(one, time, event, recorded))
        truth.append(sum(live.values()) + late)
    if not recorded:
        return
    time, address, change = np.array(recorded, np.int64).T
    none = np.full(time.size, -1, np.int64)
    events = MemoryEvents(time * 10, none, none, address, change, none, none, none)
    places = np.array(sorted(early), np.int64)
    held = RankHoldings(
        np.zeros(places.size, np.int64),
        np.array([gone.get(one, NEVER) for one in places.tolist()], np.int64),
        np.ones(places.size, np.bool_),
        places,
        np.array([early[one] for one in places.tolist()], np.int64),
        np.full(places.size, CODE[Owner.PARAMETERS]),
        np.full(places.size, "", np.object_),
        np.full(places.size, "", np.object_),
    )
    found = tally(events, held, NONE, is_cpu=True)
    at = [row for row, one in enumerate(found.events.change.tolist()) if _is_recorded(found.events, row, recorded)]
    assert found.base == sum(early.values())
    assert found.total[at].tolist() == truth


def _is_over(address, time, event, recorded):
    """Whether it is known by then that a block from before is gone: it was seen so, or its place was given out."""
    return time <= event * 10 or any(other == address for _, other, _ in recorded)


def _is_recorded(events, row, recorded):
    return (int(events.time[row]) // 10, int(events.address[row]), int(events.change[row])) in recorded


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([-2, -1, 1, 2]), max_size=30))
def test_without_addresses_the_last_of_a_size_goes_first(changes):
    change = np.array(changes, np.int64)
    found = pair(sizes_as_keys(change), change)
    stacks, expected = {1: [], 2: []}, []
    for event, one in enumerate(changes):
        if one > 0:
            stacks[one].append(event)
        else:
            expected.append((stacks[-one].pop() if stacks[-one] else BEFORE, event))
    expected += [(event, len(changes)) for stack in stacks.values() for event in stack]
    assert sorted(zip(found.born.tolist(), found.died.tolist(), strict=True)) == sorted(expected)
