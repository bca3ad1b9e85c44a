"""Matching of calls: the same collective on all its ranks, and the two ends of every transfer.

If calls have a number within their group, the number decides. Otherwise the sequences of the members are compared
(`sequences`). Transfers are matched by sender, receiver and order. A call whose group was not recorded belongs to the
group of its lane, since a communicator has a stream of its own. If no call of a lane has a group, lanes of different
ranks are assumed to be one group if their calls fit throughout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from lostflops.account.align.calls import BARRIERS, RECV, SEND, Codes, CollectiveCalls, Flags
from lostflops.account.align.sequences import Sequence, Shift, pair, pair_in_order

_NUMBERED: Final = 0.5
"""Share of a group's calls that must carry a number for numbers to decide."""
_SAME_GROUP: Final = 0.8
"""Share of calls that must fit for two lanes of unknown group to be one group."""
_TOGETHER: Final = 20_000
"""Calls that the longest sequence misses belong together if their ends are within this many ns of each other."""
_SAME_CLOCK: Final = Shift(0.0, 0.0, 0)
_LANES: Final = 1 << 24
ROW: Final = np.int32
"""Type of row numbers of calls: tables of members and meetings hold ten million of them."""


@dataclass(frozen=True, slots=True)
class Channel:
    """Ranks that meet again and again: a process group, or sender and receiver of transfers."""

    members: Codes
    rows: Codes
    """Call of each member in each meeting, as a row of `CollectiveCalls`; -1 if it was not found."""
    expected: int
    is_p2p: bool = False
    is_numbered: bool = False
    """Whether numbers show which calls belong together, or only time does."""


@dataclass(frozen=True, slots=True)
class Matched:
    calls: CollectiveCalls
    channels: tuple[Channel, ...]
    alone: Codes
    """Calls of groups with other ranks in the run that were found on no other rank, as rows."""


def match(calls: CollectiveCalls, sizes: Mapping[str, int], hosts: Mapping[int, str | None]) -> Matched:
    """Match the calls of all ranks; `sizes` of groups and `hosts` of ranks are given as far as they are known."""
    completed = _infer_groups(calls)
    channels: list[Channel] = []
    alone: list[Codes] = []
    for channel in _channels(completed, sizes, hosts):
        seen = (channel.rows >= 0).sum(axis=0)
        single = channel.rows[:, seen == 1]
        alone.append(single[single >= 0])
        kept = seen > 0 if channel.is_p2p else seen > 1
        if (seen > 1).any():
            channels.append(replace(channel, rows=channel.rows[:, kept]))
    return Matched(completed, tuple(channels), np.concatenate(alone) if alone else np.empty(0, np.int64))


def _infer_groups(calls: CollectiveCalls) -> CollectiveCalls:
    """Give calls without a group that of their lane, and transfers their operation and peer as well."""
    unknown = calls.group < 0
    if not unknown.any() or unknown.all():
        return calls
    lane = np.unique(calls.rank.astype(np.int64) * _LANES + calls.lane, return_inverse=True)[1]
    transfer = calls.having(frozenset({SEND, RECV}))
    kinds = np.where(unknown, -1, np.where(transfer, calls.op, len(calls.ops)))
    kind = _find_lane_values(lane, kinds)
    group = np.where(unknown, _find_lane_values(lane, calls.group), calls.group)
    moves = unknown & (group >= 0) & (kind >= 0) & (kind < len(calls.ops))
    return replace(
        calls,
        group=np.where(kind >= 0, group, calls.group),
        op=np.where(moves, kind, calls.op),
        peer=np.where(moves, _find_lane_values(lane, np.where(unknown, -1, calls.peer)), calls.peer),
    )


def _find_lane_values(lane: Codes, values: Codes) -> Codes:
    """Return for each row the value that all known ones of its lane have; -1 if they differ or there is none.

    >>> _find_lane_values(np.array([0, 0, 1, 1]), np.array([5, -1, 7, 8])).tolist()
    [5, 5, -1, -1]
    """
    known = values >= 0
    numbers, lane = np.unique(lane, return_inverse=True)
    low = np.full(numbers.size, np.iinfo(np.int64).max)
    high = np.full(low.size, -1, np.int64)
    np.minimum.at(low, lane[known], values[known])
    np.maximum.at(high, lane[known], values[known])
    return np.where(low == high, high, -1)[lane]


def _channels(calls: CollectiveCalls, sizes: Mapping[str, int], hosts: Mapping[int, str | None]) -> Iterator[Channel]:
    transfer = calls.having(frozenset({SEND, RECV}))
    yield from _transfers(calls, np.flatnonzero(transfer & (calls.peer >= 0)), hosts)
    shared = np.flatnonzero(~transfer & (calls.group >= 0))
    shared = shared[np.argsort(calls.group[shared], kind="stable")]
    edges = np.flatnonzero(np.diff(calls.group[shared], prepend=-1))
    for first, last in _spans(edges, shared.size):
        rows = shared[first:last]
        members = np.unique(calls.rank[rows])
        if members.size > 1:
            expected = sizes.get(calls.groups[calls.group[rows[0]]], -1)
            numbered = _has_sequence_numbers(calls, rows)
            table = _by_number(calls, rows, members) if numbered else _by_time(calls, rows, members, hosts)
            yield Channel(members, table, expected, is_numbered=numbered)
    yield from _nameless(calls, np.flatnonzero(~transfer & (calls.group < 0)), hosts)


def _spans(edges: Codes, size: int) -> Iterator[tuple[int, int]]:
    """Yield the span from each edge to the next, and from the last to the end."""
    yield from zip(edges.tolist(), np.append(edges, size)[1:].tolist(), strict=True)


def _has_sequence_numbers(calls: CollectiveCalls, rows: Codes) -> bool:
    return bool((calls.seq[rows] >= 0).mean() >= _NUMBERED)


def _by_number(calls: CollectiveCalls, rows: Codes, members: Codes) -> Codes:
    """Match calls by number; calls of a coalesced collective share a number and are matched by their order."""
    seq = _fill_sequence_numbers(calls.rank[rows], calls.seq[rows])
    rows, seq = rows[seq >= 0], seq[seq >= 0]
    repeats = _occurrence(calls.rank[rows], seq)
    if repeats.any():
        whole = _as_many_as_any(calls.rank[rows], seq)
        rows, seq, repeats = rows[whole], seq[whole], repeats[whole]
    key = seq - seq.min() if seq.size else seq
    key = key * (int(repeats.max(initial=0)) + 1) + repeats
    numbers, meeting = np.unique(key, return_inverse=True)
    table = np.full((members.size, numbers.size), -1, ROW)
    table[np.searchsorted(members, calls.rank[rows]), meeting] = rows
    return _of_one_kind(calls, table)


def _fill_sequence_numbers(rank: Codes, seq: Codes) -> Codes:
    """Fill in numbers of calls that lost theirs, if exactly they are missing between two known ones of the rank."""
    missing = np.flatnonzero(seq < 0)
    known = np.flatnonzero(seq >= 0)
    if not missing.size or not known.size:
        return seq
    after = np.searchsorted(known, missing)
    inner = (after > 0) & (after < known.size)
    missing, left, right = missing[inner], known[after[inner] - 1], known[after[inner]]
    whole = (seq[right] - seq[left] == right - left) & (rank[left] == rank[missing]) & (rank[right] == rank[missing])
    filled = seq.copy()
    filled[missing[whole]] = seq[left[whole]] + missing[whole] - left[whole]
    return filled


def _occurrence(rank: Codes, seq: Codes) -> Codes:
    """Return how many earlier calls of the rank have the same number."""
    if not seq.size or (np.diff(seq)[np.diff(rank) == 0] > 0).all():
        return np.zeros(seq.size, np.int64)
    order = np.lexsort((seq, rank))
    new = np.ones(seq.size, np.bool_)
    new[1:] = (np.diff(rank[order]) != 0) | (np.diff(seq[order]) != 0)
    first = np.maximum.accumulate(np.where(new, np.arange(seq.size), 0))
    counts = np.empty(seq.size, np.int64)
    counts[order] = np.arange(seq.size) - first
    return counts


def _as_many_as_any(rank: Codes, seq: Codes) -> Flags:
    """Return which calls have a rank with as many calls of their number as any other rank.

    If a rank has fewer, it is unknown which of them were lost.

    >>> _as_many_as_any(np.array([0, 0, 0, 1, 1]), np.array([1, 2, 2, 1, 2])).tolist()
    [True, True, True, True, False]
    """
    numbers, number = np.unique(seq, return_inverse=True)
    own, counts = np.unique(rank.astype(np.int64) * numbers.size + number, return_inverse=True, return_counts=True)[1:]
    most = np.zeros(numbers.size, np.int64)
    np.maximum.at(most, number, counts[own])
    return np.asarray(counts[own] == most[number])


def _of_one_kind(calls: CollectiveCalls, table: Codes) -> Codes:
    """Leave out calls whose operation is not that of most in their meeting: their number was used twice."""
    kinds = np.where(table >= 0, calls.op[table], -1)
    if not np.where(table >= 0, kinds != kinds.max(axis=0), False).any():
        return table
    counts = np.stack([(kinds == op).sum(axis=0) for op in range(len(calls.ops))])
    most = np.where(counts.any(axis=0), counts.argmax(axis=0), -1)
    return np.where(kinds == most, table, -1)


def _sequence(calls: CollectiveCalls, rows: Codes, one_kind: bool = False) -> Sequence:
    kinds = np.zeros(rows.size, np.int64) if one_kind else calls.op[rows]
    barrier = np.array([op in BARRIERS for op in calls.ops] + [False], np.bool_)[calls.op[rows]]
    return Sequence(kinds, calls.size[rows], calls.step[rows], barrier, calls.start[rows], calls.stop[rows])


def _clock(hosts: Mapping[int, str | None], a: int, b: int) -> Shift | None:
    return _SAME_CLOCK if hosts.get(a) is not None and hosts.get(a) == hosts.get(b) else None


def _by_time(calls: CollectiveCalls, rows: Codes, members: Codes, hosts: Mapping[int, str | None]) -> Codes:
    """Match by time: meetings are the calls of the member with the most, and calls that it misses but others share."""
    own = [rows[calls.rank[rows] == member] for member in members.tolist()]
    first = int(np.argmax([one.size for one in own]))
    longest = _sequence(calls, own[first])
    table = np.full((members.size, own[first].size), -1, ROW)
    table[first] = own[first]
    rest: list[tuple[int, Codes, Shift]] = []
    for place, mine in enumerate(own):
        if place == first:
            continue
        found = pair(longest, _sequence(calls, mine), _clock(hosts, int(members[first]), int(members[place])))
        if found is not None:
            i, j, shift = found
            table[place, i] = mine[j]
            rest.append((place, np.delete(mine, j), shift))
    return np.concatenate((table, _leftovers(calls, members.size, rest)), axis=1)


def _leftovers(calls: CollectiveCalls, members: int, rest: list[tuple[int, Codes, Shift]]) -> Codes:
    """Gather calls that the longest sequence misses by their ends on its clock, if they run at the same time."""
    rows = np.concatenate([np.empty(0, np.int64), *(own for _, own, _ in rest)])
    if not rows.size:
        return np.empty((members, 0), np.int64)
    place = np.concatenate([np.full(own.size, place, np.int64) for place, own, _ in rest])
    start = np.concatenate([shift.remove(calls.start[own]) for _, own, shift in rest])
    stop = np.concatenate([shift.remove(calls.stop[own]) for _, own, shift in rest])
    order = np.argsort(stop, kind="stable")
    apart = np.diff(stop[order], prepend=stop[order[0]]) > _TOGETHER
    apart[1:] |= start[order[1:]] > stop[order[:-1]]
    apart[1:] |= calls.op[rows[order[1:]]] != calls.op[rows[order[:-1]]]
    meeting = np.cumsum(apart)
    table = np.full((members, int(meeting[-1]) + 1), -1, np.int64)
    table[place[order], meeting] = rows[order]
    return table


def _transfers(calls: CollectiveCalls, rows: Codes, hosts: Mapping[int, str | None]) -> Iterator[Channel]:
    """Yield a channel for each sender and receiver, with the sends of one beside the receives of the other."""
    sends = calls.having(frozenset({SEND}))[rows]
    sender = np.where(sends, calls.rank[rows], calls.peer[rows])
    receiver = np.where(sends, calls.peer[rows], calls.rank[rows])
    order = np.lexsort((receiver, sender, calls.group[rows]))
    keys = np.stack((calls.group[rows], sender, receiver))[:, order]
    edges = np.flatnonzero(np.any(np.diff(keys, prepend=-2, axis=1) != 0, axis=0))
    for first, last in _spans(edges, rows.size):
        own = np.sort(order[first:last])
        ends = rows[own[sends[own]]], rows[own[~sends[own]]]
        source, target = int(keys[1, first]), int(keys[2, first])
        if source == target or not ends[0].size or not ends[1].size:
            continue
        members = np.array([source, target])
        yield Channel(members, _two_ends(calls, *ends, _clock(hosts, source, target)), 2, is_p2p=True)


def _two_ends(calls: CollectiveCalls, sent: Codes, received: Codes, clock: Shift | None) -> Codes:
    out, back = (_sequence(calls, rows, one_kind=True) for rows in (sent, received))
    # A receive may be posted long before its data is sent, so that it runs beside several sends.
    found = pair(out, back, clock, loosely=False)
    i, j = pair_in_order(out, back, found) if found is not None else (np.empty(0, np.int64), np.empty(0, np.int64))
    alone = np.delete(sent, i), np.delete(received, j)
    none = tuple(np.full(one.size, -1, np.int64) for one in alone)
    return np.stack((np.concatenate((sent[i], alone[0], none[1])), np.concatenate((received[j], none[0], alone[1]))))


def _nameless(calls: CollectiveCalls, rows: Codes, hosts: Mapping[int, str | None]) -> Iterator[Channel]:
    """Yield channels of calls without a known group, those on the host and on devices separately."""
    for on_host in (False, True):
        own = rows[calls.on_host[rows] == on_host]
        if np.unique(calls.rank[own]).size > 1:
            yield from _one_world(calls, own, np.zeros(own.size, np.int64) if on_host else calls.lane[own], hosts)


def _one_world(calls: CollectiveCalls, rows: Codes, lanes: Codes, hosts: Mapping[int, str | None]) -> Iterator[Channel]:
    """Yield channels of lanes of all ranks that fit one lane of the rank with most calls."""
    ranks, counts = np.unique(calls.rank[rows], return_counts=True)
    first = int(ranks[counts.argmax()])
    free: Flags = np.ones(rows.size, np.bool_)
    for lane in np.unique(lanes[calls.rank[rows] == first]).tolist():
        own = rows[(calls.rank[rows] == first) & (lanes == lane)]
        chosen = [own]
        for rank in ranks[ranks != first].tolist():
            its = free & (calls.rank[rows] == rank)
            best = _best_lane(calls, own, rows, lanes, candidates=its, clock=_clock(hosts, first, rank))
            if best.size:
                free &= ~np.isin(rows, best)
                chosen.append(best)
        together = np.sort(np.concatenate(chosen))
        members = np.unique(calls.rank[together])
        if members.size > 1:
            yield Channel(members, _by_time(calls, together, members, hosts), -1)


def _best_lane(
    calls: CollectiveCalls, longest: Codes, rows: Codes, lanes: Codes, *, candidates: Flags, clock: Shift | None
) -> Codes:
    best, most = np.empty(0, np.int64), 0.0
    for lane in np.unique(lanes[candidates]).tolist():
        own = rows[candidates & (lanes == lane)]
        found = pair(_sequence(calls, longest), _sequence(calls, own), clock)
        share = found[0].size / min(longest.size, own.size) if found is not None else 0.0
        if share >= _SAME_GROUP and found is not None and found[0].size > most:
            best, most = own, found[0].size
    return best
