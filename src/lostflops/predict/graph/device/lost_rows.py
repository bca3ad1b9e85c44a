"""Records of a device with the collectives that it lost, so that waits in them are found like all others."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from lostflops.account.ledger.host_traits import Trait
from lostflops.account.ledger.nesting import Nest
from lostflops.account.ledger.record import COMM, Codes, DeviceEvents, Record
from lostflops.predict.graph.device.streams import SOON
from lostflops.store.intervals import Intervals

if TYPE_CHECKING:
    from lostflops.predict.graph.lost_calls import LostCall, LostCalls

_ROUNDED: Final = 1_000
"""Error of recorded times, in ns: old traces count whole microseconds."""


class RestoredRecord(NamedTuple):
    record: Record
    meets: Mapping[int, Hashable]
    """Meeting of each restored row of the device."""


class _Room(NamedTuple):
    """Time on a stream in which a lost call ran."""

    free: int
    """When the stream was free for it."""
    stop: int
    before: int
    """Row of the collective before it on the stream, -1 for none."""
    following: int
    """Row of the collective after it on the stream, -1 for none."""


def restore_calls(record: Record, lost: LostCalls) -> RestoredRecord:
    """Return the record with a row of the device for each lost call; a call is left out if the device was not recorded
    then, or if its stream or a collective without a meeting was busy at the time: it may be recorded but unmatched."""
    device = record.device
    place, calling = _Place(record, lost.unmatched), _Calling(record)
    rows: list[tuple[LostCall, int, int, int, int]] = []
    for call in lost.calls:
        like = place.rows(call.alike)
        room = place.room(call, like) if like.size else None
        if room is None:
            continue
        latest = max(room.stop - call.transfer // 2, room.free)
        launch = calling.find_launch(like, room, latest)
        ready = place.usual_start(call, like, room.stop) if launch < 0 else calling.ready(launch)
        start = max(min(ready, latest), room.free)
        if start < room.stop:
            launch = calling.find_shared_launch(like, max(start, min(ready, room.stop))) if launch < 0 else launch
            rows.append((call, int(like[0]), start, room.stop, launch))
    if not rows:
        return RestoredRecord(record, {})
    calls, *columns = zip(*rows, strict=True)
    more = _device_rows(record, calls, [np.array(column, np.int64) for column in columns])
    both = {one.name: np.concatenate((getattr(device, one.name), getattr(more, one.name))) for one in fields(device)}
    meets = {device.start.size + number: call.meeting for number, call in enumerate(calls)}
    return RestoredRecord(replace(record, device=DeviceEvents(**both)), meets)


def _device_rows(record: Record, calls: Sequence[LostCall], columns: Sequence[Codes]) -> DeviceEvents:
    """Return rows like those of recorded calls, with their own times. A step keeps its recorded edges: a row beyond
    them is in no step."""
    like, start, stop, launch = columns
    device, steps = record.device, record.steps
    step = np.array([call.step for call in calls], np.int64)
    at = np.minimum(np.searchsorted(steps.number, step), max(steps.number.size - 1, 0))
    inside = (steps.number[at] == step) & (start >= steps.device_start[at]) & (stop <= steps.device_stop[at])
    return DeviceEvents(
        event=np.full(len(calls), -1, np.int64),
        lane=device.lane[like],
        start=start,
        stop=stop,
        kind=device.kind[like],
        name=device.name[like],
        annotation=device.annotation[like],
        module=device.module[like],
        step=np.where(inside, step, -1),
        launch=launch,
        occupancy=device.occupancy[like],
    )


class _Place:
    """Where a rank's device has room for calls that it lost."""

    def __init__(self, record: Record, unmatched: Sequence[int]) -> None:
        self._device = device = record.device
        self._by_event = np.argsort(device.event, kind="stable")
        computing = device.kind != COMM
        self._busy = Intervals.of(device.start[computing], device.stop[computing])
        comm = np.flatnonzero(~computing)
        self._comm = comm[np.argsort(device.start[comm], kind="stable")]
        self._begin, self._end = int(device.start.min()), int(device.stop.max())
        known = np.isin(device.event[comm], record.collectives.event)
        self._unmatched = comm[~known | np.isin(device.event[comm], unmatched)]
        self._habits: dict[int, tuple[int | None, int]] = {}

    def rows(self, events: Codes) -> Codes:
        """Return the rows of events, in order of time; events that are not the device's are left out."""
        order, known = self._by_event, self._device.event
        at = np.minimum(np.searchsorted(known, events, sorter=order), order.size - 1)
        found: Codes = order[at]
        found = found[known[found] == events]
        return found[np.argsort(self._device.start[found], kind="stable")]

    def room(self, call: LostCall, like: Codes) -> _Room | None:
        """Return the room for a lost call on its stream, None if it cannot have run there."""
        device = self._device
        if not self._begin < call.stop < self._end:
            return None
        lane = int(np.bincount(device.lane[like]).argmax())
        own = self._comm[device.lane[self._comm] == lane]
        middle = call.stop - call.transfer // 2
        after = int(np.searchsorted(device.start[own], middle))
        before, following = (int(own[at]) if 0 <= at < own.size else -1 for at in (after - 1, after))
        free = int(device.stop[before]) if before >= 0 else self._begin
        if free > middle or self._is_taken(call):
            return None
        gap = self._gap(call.stop)
        stop = min(call.stop, call.stop if gap is None else gap[1])
        return _Room(free, min(stop, int(device.start[following])) if following >= 0 else stop, before, following)

    def usual_start(self, call: LostCall, like: Codes, stop: int) -> int:
        """Return when a call starts that starts as long after the device ran dry as calls that are alike, or takes as
        long as they do if nothing waits for them."""
        gap, (after_gap, length) = self._gap(call.stop), self._habit(like)
        return stop - length if gap is None or after_gap is None else gap[0] + after_gap

    def _is_taken(self, call: LostCall) -> bool:
        """Return whether a collective without a meeting ran then."""
        rows, begin = self._unmatched, call.stop - call.transfer
        both = np.minimum(self._device.stop[rows], call.stop) - np.maximum(self._device.start[rows], begin)
        return bool((both > call.transfer // 2).any())

    def _gap(self, stop: int) -> tuple[int, int] | None:
        """Return the pause of everything but collectives that ends about when a call stopped, or None."""
        starts = self._busy.start[1:]
        at = int(np.searchsorted(starts, stop))
        near = [i for i in (at - 1, at) if 0 <= i < starts.size and abs(int(starts[i]) - stop) <= SOON]
        best = min(near, key=lambda i: abs(int(starts[i]) - stop), default=None)
        return None if best is None else (int(self._busy.stop[best]), int(starts[best]))

    def _habit(self, like: Codes) -> tuple[int | None, int]:
        """Return how long after the start of such a pause calls of a kind usually start, None if nothing pauses for
        them; and how long they usually take."""
        key = int(like[0])
        if key not in self._habits:
            starts, stops = self._device.start[like], self._device.stop[like]
            gaps = [(self._gap(stop), start) for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
            after = [start - gap[0] for gap, start in gaps if gap is not None]
            self._habits[key] = int(np.median(after)) if after else None, int(np.median(stops - starts))
        return self._habits[key]


class _Calling:
    """Recorded calls that may have launched the collectives that a device lost."""

    def __init__(self, record: Record) -> None:
        self._host, self._device = record.host, record.device
        launched = self._device.launch >= 0
        self._counts = np.bincount(self._device.launch[launched], minlength=self._host.start.size)
        work = np.flatnonzero(self._device.kind != COMM)
        self._by_stop = work[np.argsort(self._device.stop[work], kind="stable")]
        work = work[launched[work]]
        self._by_call = work[np.argsort(self._host.start[self._device.launch[work]], kind="stable")]
        self._ops: dict[int, tuple[Codes, Nest]] = {}

    def find_launch(self, like: Codes, room: _Room, latest: int) -> int:
        """Return the row of the call that launched a collective, -1 if it is unknown: the last call before it had to
        start that launched nothing, comes from the same op as those of calls that are alike, and is between those of
        the collectives beside it on the stream."""
        calls = self._device.launch[like]
        calls = calls[calls >= 0]
        if not calls.size:
            return -1
        host, lane = self._host, int(self._host.lane[calls[0]])
        beside = [int(self._device.launch[row]) if row >= 0 else -1 for row in (room.before, room.following)]
        first = int(host.start[beside[0]]) if beside[0] >= 0 else np.iinfo(np.int64).min
        last = min(int(host.start[beside[1]]), latest) if beside[1] >= 0 else latest
        free = (host.lane == lane) & (self._counts == 0) & (host.name == host.name[calls[0]])
        rows = np.flatnonzero(free & (host.start > first) & (host.start < last))
        if not rows.size:
            return -1
        inside = self._around(lane, np.append(rows, calls[0]))
        rows = rows[inside[:-1] == inside[-1]]
        return int(rows[np.argmax(host.start[rows])]) if rows.size else -1

    def ready(self, launch: int) -> int:
        """Return when a collective could start: its inputs are done when the last other work is that its thread
        launched before it."""
        called, thread = int(self._host.start[launch]), self._host.lane[launch]
        rows = self._by_call
        until = int(np.searchsorted(self._host.start[self._device.launch[rows]], called))
        own = np.flatnonzero(self._host.lane[self._device.launch[rows[:until]]] == thread)
        return max(called, int(self._device.stop[rows[own[-1]]]) if own.size else called)

    def find_shared_launch(self, like: Codes, start: int) -> int:
        """Return the row of the call that launched the work before a collective, if calls that are alike share theirs
        with other work, as in a CUDA graph; else -1."""
        calls = self._device.launch[like]
        calls = calls[calls >= 0]
        at = int(np.searchsorted(self._device.stop[self._by_stop], start + _ROUNDED, side="right")) - 1
        is_shared = calls.size and np.median(self._counts[calls]) > 1
        return int(self._device.launch[self._by_stop[at]]) if is_shared and at >= 0 else -1

    def _around(self, lane: int, rows: Codes) -> Codes:
        """Return the name of the innermost op around each call, -1 for none."""
        if lane not in self._ops:
            ops = self._host.having(Trait.OP, [lane])
            self._ops[lane] = ops, Nest(self._host.start[ops], self._host.stop[ops])
        ops, nest = self._ops[lane]
        inner = nest.innermost(self._host.start[rows])
        return np.where(inner >= 0, self._host.name[ops[inner]], -1) if ops.size else inner
