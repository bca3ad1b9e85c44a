"""Records of a device with the collectives that it lost, so that waits in them are found like all others."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from lostflops.account.ledger.record import COMM, Codes, DeviceEvents, Ns, Record
from lostflops.predict.graph.device.streams import SOON
from lostflops.store.intervals import Intervals

if TYPE_CHECKING:
    from lostflops.predict.graph.lost_calls import LostCall, LostCalls

_HALF: Final = 0.5


class RestoredRecord(NamedTuple):
    record: Record
    meets: Mapping[int, Hashable]
    """Meeting of each restored row of the device."""


def restore_calls(record: Record, lost: LostCalls) -> RestoredRecord:
    """Return the record with a row of the device for each lost call; a call is left out if the device was not recorded
    then, or if its stream or a collective without a meeting was busy at the time: it may be recorded but unmatched."""
    device = record.device
    place = _Place(record, lost.unmatched)
    rows: list[tuple[LostCall, int, int, int]] = []
    for call in lost.calls:
        like = place.rows(call.alike)
        if like.size and (found := place.times(call, like)) is not None:
            rows.append((call, int(like[0]), *found))
    if not rows:
        return RestoredRecord(record, {})
    calls, like, start, stop = zip(*rows, strict=True)
    more = _device_rows(record, calls, np.array(like), np.array(start), np.array(stop))
    columns = (np.concatenate((getattr(device, one.name), getattr(more, one.name))) for one in fields(DeviceEvents))
    meets = {device.start.size + number: call.meeting for number, call in enumerate(calls)}
    return RestoredRecord(replace(record, device=DeviceEvents(**dict(zip(_COLUMNS, columns, strict=True)))), meets)


_COLUMNS: Final = tuple(one.name for one in fields(DeviceEvents))


def _device_rows(record: Record, calls: Sequence[LostCall], like: Codes, start: Ns, stop: Ns) -> DeviceEvents:
    """Return rows like those of recorded calls, with their own times. A step keeps its recorded edges: a row beyond
    them is in no step."""
    device, steps = record.device, record.steps
    step = np.array([call.step for call in calls], np.int64)
    at = np.minimum(np.searchsorted(steps.number, step), max(steps.number.size - 1, 0))
    inside = (steps.number[at] == step) & (start >= steps.device_start[at]) & (stop <= steps.device_stop[at])
    none = np.full(len(calls), -1, np.int64)
    return DeviceEvents(
        event=none,
        lane=device.lane[like],
        start=start,
        stop=stop,
        kind=device.kind[like],
        name=device.name[like],
        annotation=device.annotation[like],
        module=device.module[like],
        step=np.where(inside, step, -1),
        launch=none,
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
        found = order[at]
        found = found[known[found] == events]
        return found[np.argsort(self._device.start[found], kind="stable")]

    def times(self, call: LostCall, like: Codes) -> tuple[int, int] | None:
        """Return when a lost call started and stopped, None if it cannot have run there."""
        device = self._device
        if not self._begin < call.stop < self._end:
            return None
        lane = int(np.bincount(device.lane[like]).argmax())
        own = self._comm[device.lane[self._comm] == lane]
        middle = call.stop - call.transfer // 2
        after = int(np.searchsorted(device.start[own], middle))
        free = int(device.stop[own[after - 1]]) if after else self._begin
        following = int(device.start[own[after]]) if after < own.size else self._end
        if free > middle or self._is_taken(call):
            return None
        gap, (after_gap, length) = self._gap(call.stop), self._habit(like)
        stop = min(call.stop, following, call.stop if gap is None else gap[1])
        start = stop - length if gap is None or after_gap is None else gap[0] + after_gap
        start = max(min(start, stop - call.transfer), free)
        return (start, stop) if stop > start else None

    def _is_taken(self, call: LostCall) -> bool:
        """Return whether a collective without a meeting ran then."""
        rows, begin = self._unmatched, call.stop - call.transfer
        both = np.minimum(self._device.stop[rows], call.stop) - np.maximum(self._device.start[rows], begin)
        return bool((both > call.transfer // 2).any())

    def _gap(self, stop: int) -> tuple[int, int] | None:
        """Return the pause of everything but collectives that ends about when a call stopped, None if there is none."""
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
