"""Which Flight Recorder entry is each gloo event of a Kineto trace?

Kineto times gloo's collectives but gives them no group and no sequence number; the Flight Recorder has
both, but no times except that of the enqueue. What is certain (torch/csrc/distributed/c10d/ProcessGroupGloo.cpp):

- Each group has one queue, in order of `seq`, and worker threads of its own: a lane serves one group.
- A worker takes one work at a time, and its event starts after it was taken, so after `created`. Two idle
  workers may start their events in the other order than they took the works.
- A work has an event only if it was created while the profiler was on (`recordAsyncWorkProfilingInfo`).
- The recorder's ring forgets the oldest entries only; `send` and `recv` are not in it.

Kineto may lack any event. From this follow, for each event, the earliest and the latest entry that it can
be; where the two meet there is a match, everywhere else there is none. No likelihoods are involved.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise

_GLOO = "gloo:"
NOT_QUEUED = ("send", "recv", None)
_MAX_ROUNDS = 30


@dataclass(frozen=True, slots=True)
class GlooEvents:
    """The `gloo:*` events of one rank, columns as in `collectives`."""

    op: Sequence[str | None]
    bytes_in: Sequence[int | None]
    """Null fits any size."""
    lane: Sequence[int]
    start: Sequence[int]
    stop: Sequence[int]


@dataclass(frozen=True, slots=True)
class FlightEntries:
    """All entries of the same rank, of any backend, columns as in `flight`."""

    record: Sequence[int | None]
    name: Sequence[str]
    op: Sequence[str | None]
    bytes_in: Sequence[int | None]
    group: Sequence[Hashable]
    """Any value that distinguishes the rank's groups: the group's id, or its name."""
    seq: Sequence[int | None]
    created: Sequence[int | None]


def match(
    events: GlooEvents, entries: FlightEntries, profiled_from: int, recorded_until: int | None = None
) -> list[int]:
    """Return for each event the index of its entry, or -1 if that is not certain.

    `profiled_from` is when the profiler was switched on. `recorded_until` is a time before which the dump was certainly
    not taken; by default that of the last entry, so that later events stay unmatched.

    >>> events = GlooEvents(["all_reduce"] * 2, [8, 8], [1, 2], start=[15, 25], stop=[17, 27])
    >>> entries = FlightEntries(
    ...     record=[0, 1, 2], name=["gloo:all_reduce"] * 3, op=["all_reduce"] * 3, bytes_in=[8, 8, 4],
    ...     group=["0"] * 3, seq=[1, 2, 3], created=[14, 24, 34],
    ... )
    >>> match(events, entries, profiled_from=10)
    [0, 1]
    """
    matches = [-1] * len(events.op)
    times = [created for created in entries.created if created is not None]
    if not times or not _complete(entries, min(times), profiled_from):
        return matches
    horizon = max(times) if recorded_until is None else recorded_until
    queues = _queues(entries, profiled_from)
    lanes: dict[int, list[int]] = {}
    for event in sorted(range(len(events.op)), key=lambda event: events.start[event]):
        if events.op[event] not in NOT_QUEUED and profiled_from <= events.start[event] <= horizon:
            lanes.setdefault(events.lane[event], []).append(event)
    for group, members in _lanes_by_group(events, lanes, queues).items():
        queue = queues[group]
        bounds = queue and _bounds(events, [lanes[lane] for lane in members], queue)
        for event, (lower, upper) in (bounds or {}).items():
            if lower == upper and queue:
                matches[event] = queue.entries[lower]
    return matches


def _complete(entries: FlightEntries, oldest: int, profiled_from: int) -> bool:
    """Return whether the entries include every work created since the profiler was on, up to the last entry."""
    records = sorted(record for record in entries.record if record is not None)
    if len(records) < len(entries.record) or records[-1] - records[0] != len(records) - 1:
        return False
    if oldest <= profiled_from:
        return True
    first: dict[Hashable, int] = {}
    for name, group, seq in zip(entries.name, entries.group, entries.seq, strict=True):
        if seq is not None and name.startswith(_GLOO):
            first[group] = min(seq, first.get(group, seq))
    return records[0] == 0 and all(seq == 1 for seq in first.values())


class _Queue:
    """Works that one group enqueued while the profiler was on, in order."""

    def __init__(self, entries: FlightEntries, order: list[int]) -> None:
        self.entries = order
        self.created = [entries.created[entry] or 0 for entry in order]
        self.keys = [(entries.op[entry], entries.bytes_in[entry]) for entry in order]
        self._places: dict[tuple[str | None, int | None], list[int]] = {}

    def places(self, op: str | None, size: int | None) -> list[int]:
        """Return the positions of the entries that such an event could be, whenever it started."""
        if (op, size) not in self._places:
            self._places[op, size] = [
                place
                for place, (entry_op, entry_size) in enumerate(self.keys)
                if entry_op == op and (size is None or entry_size is None or entry_size == size)
            ]
        return self._places[op, size]


def _queues(entries: FlightEntries, profiled_from: int) -> dict[Hashable, _Queue | None]:
    """Return the queue of each group; None if entries are missing, so that nothing is certain about it."""
    by_group: dict[Hashable, list[int]] = {}
    for entry, (name, group) in enumerate(zip(entries.name, entries.group, strict=True)):
        if name.startswith(_GLOO):
            by_group.setdefault(group, []).append(entry)
    queues: dict[Hashable, _Queue | None] = {}
    for group, members in by_group.items():
        numbered = sorted(
            (seq, created, entry)
            for entry in members
            if (seq := entries.seq[entry]) is not None and (created := entries.created[entry]) is not None
        )
        gapless = all(b[0] == a[0] + 1 and b[1] >= a[1] for a, b in pairwise(numbered))
        if group is None or not gapless or len(numbered) != len(members):
            queues[group] = None
        else:
            queues[group] = _Queue(entries, [entry for _, created, entry in numbered if created >= profiled_from])
    return queues


def _lanes_by_group(
    events: GlooEvents, lanes: dict[int, list[int]], queues: dict[Hashable, _Queue | None]
) -> dict[Hashable, list[int]]:
    """Return the lanes that can serve only one group, by group."""
    possible: dict[int, set[Hashable]] = {
        lane: {group for group, queue in queues.items() if queue is None or _bounds(events, [members], queue)}
        for lane, members in lanes.items()
    }
    settled: dict[Hashable, list[int]] = {}
    while True:
        certain = [lane for lane, groups in possible.items() if len(groups) == 1]
        for lane in certain:
            settled.setdefault(possible.pop(lane).pop(), []).append(lane)
        before = sum(map(len, possible.values()))
        for lane, groups in possible.items():
            for group in [group for group in groups if group in settled]:
                queue = queues[group]
                if queue and not _bounds(events, [lanes[other] for other in [*settled[group], lane]], queue):
                    groups.discard(group)
        if not certain and before == sum(map(len, possible.values())):
            return settled


def _bounds(events: GlooEvents, lanes: list[list[int]], queue: _Queue) -> dict[int, tuple[int, int]] | None:
    """Return the first and last possible place of each event in the queue; None if they cannot all be in it."""
    order = sorted((event for lane in lanes for event in lane), key=lambda event: events.start[event])
    places = [queue.places(events.op[event], events.bytes_in[event]) for event in order]
    lower, upper = [0] * len(order), [0] * len(order)
    for rank, event in enumerate(order):
        visible = bisect_right(queue.created, events.start[event])
        count = bisect_left(places[rank], visible)
        if not count:
            return None
        lower[rank], upper[rank] = places[rank][0], places[rank][count - 1]
    taken_before, next_on_lane = _certain_order(events, lanes, order)
    peers: dict[int, list[int]] = {}
    for rank, compatible in enumerate(places):
        peers.setdefault(id(compatible), []).append(rank)
    for _ in range(_MAX_ROUNDS):
        before = lower.copy(), upper.copy()
        _raise_lower(lower, places, taken_before)
        _reduce_upper(upper, places, next_on_lane)
        for ranks in peers.values():
            if not _all_different(ranks, places[ranks[0]], lower, upper):
                return None
        if any(low > high for low, high in zip(lower, upper, strict=True)):
            return None
        if before == (lower, upper):
            break
    return {event: (lower[rank], upper[rank]) for rank, event in enumerate(order)}


def _certain_order(events: GlooEvents, lanes: list[list[int]], order: list[int]) -> tuple[list[int], list[int | None]]:
    """Return for each event, in order of start, how many of the first were taken before it, and the next on its lane.

    A worker took its work after its previous one stopped, hence after all works whose events had started then.
    """
    rank_of = {event: rank for rank, event in enumerate(order)}
    starts = [events.start[event] for event in order]
    taken_before = [0] * len(order)
    next_on_lane: list[int | None] = [None] * len(order)
    for lane in lanes:
        for previous, event in pairwise(lane):
            rank = rank_of[event]
            taken_before[rank] = min(rank, bisect_right(starts, events.stop[previous]))
            next_on_lane[rank_of[previous]] = rank
    return taken_before, next_on_lane


def _raise_lower(lower: list[int], places: list[list[int]], taken_before: list[int]) -> None:
    reach = [-1]  # reach[n]: the first n events need at least the places up to this one
    for least in _suffix_minimum(lower):
        reach.append(max(reach[-1] + 1, least))
    highest = [-1]
    for low in lower:
        highest.append(max(highest[-1], low))
    for rank, count in enumerate(taken_before):
        floor = max(lower[rank], reach[count] + 1, highest[count] + 1)
        index = bisect_left(places[rank], floor)
        lower[rank] = places[rank][index] if index < len(places[rank]) else floor


def _reduce_upper(upper: list[int], places: list[list[int]], next_on_lane: list[int | None]) -> None:
    for rank in range(len(upper) - 1, -1, -1):
        following = next_on_lane[rank]
        if following is not None and upper[following] <= upper[rank]:
            index = bisect_left(places[rank], upper[following])
            upper[rank] = places[rank][index - 1] if index else -1


def _all_different(ranks: list[int], compatible: list[int], lower: list[int], upper: list[int]) -> bool:
    """Narrow the bounds of events of one kind, as no two can be the same entry; return False if that is impossible.

    n events that are all within n places leave no place among these to the others (Hall intervals).
    """
    lows = [bisect_left(compatible, lower[rank]) for rank in ranks]
    highs = [bisect_right(compatible, upper[rank]) - 1 for rank in ranks]
    mirrored = [-high for high in highs]
    if not _push_up(lows, highs) or not _push_up(mirrored, [-low for low in lows]):
        return False
    for rank, low, high in zip(ranks, lows, mirrored, strict=True):
        if low > -high:
            return False
        lower[rank], upper[rank] = compatible[low], compatible[-high]
    return True


def _push_up(lows: list[int], highs: list[int]) -> bool:
    order = sorted(range(len(lows)), key=lambda index: highs[index])
    least = _suffix_minimum([lows[index] for index in order])
    floor, count = least[0], 0
    for index, remaining in zip(order, least, strict=True):
        if not count:
            floor = max(floor, remaining)
        lows[index] = max(lows[index], floor)
        count += 1
        if highs[index] < floor + count - 1:
            return False
        if highs[index] == floor + count - 1:
            floor, count = highs[index] + 1, 0
    return True


def _suffix_minimum(values: list[int]) -> list[int]:
    """Return for each position the minimum of the values from there on.

    >>> _suffix_minimum([3, 1, 2])
    [1, 1, 2]
    """
    result = values.copy()
    for index in range(len(values) - 2, -1, -1):
        result[index] = min(result[index], result[index + 1])
    return result
