"""Causes of idle device time: each gap is explained by the event that ends it and by its launching thread.

Up to the launch, the gap is split by what the launching thread did. Then, while the launching call runs, and for at
least the rank's smallest launch latency, the host still hands the work over; after that the work is queued, and the
device itself waits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from lostflops.account.ledger.host_traits import Trait
from lostflops.account.ledger.record import MEMCPY, Codes, Ns, Record
from lostflops.store.intervals import Intervals
from lostflops.store.row_groups import group_rows

_PAGEABLE: Final = re.compile(r"Pageable|DtoH(?!.*Pinned)")
_TO_HOST: Final = re.compile(r"Memcpy DtoH")
NEVER: Final = np.iinfo(np.int64).max
_BEFORE_ALL: Final = np.iinfo(np.int64).min
CLOCK_SKEW: Final = 100_000
"""Difference between the clocks of a host and its device that is seen in recorded traces, in ns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """Idle gaps in order of time."""

    start: Ns
    stop: Ns
    ender: Codes
    """Device row that ends each gap; -1 for none."""
    blocker: Codes
    """Host row of the call that had blocked on the device; -1 for none."""
    lines: dict[str, Intervals]
    calls: Intervals
    """Part of `idle.host` inside calls of the runtime, launches included."""


def explain(record: Record, idle: Intervals) -> Gaps:
    start, stop = _split_gaps(idle, record.device.start[record.device.start == record.device.stop])
    latest = _latest_launches(record)
    ender, launch, returned = _enders(record, stop, latest)
    queued = (ender >= 0) & (latest[ender] < start)
    known = launch < NEVER
    begin, until = _handed_over(record, start, stop, launch, returned)
    lanes = np.where(known, _launch_lane(record, ender), -1)
    blocker, refilled = _refills(record, start, begin, lanes)
    layers = _GapLayers(record)
    calls = [Intervals.of(begin[known], until[known])]
    layers.add("idle.host", calls[0])
    for lane, own in group_rows(lanes):
        if lane < 0:
            continue
        blocked = Intervals.of(start[own], refilled[own])
        calls.append(layers.take_thread(lane, Intervals.of(start[own], begin[own]), blocked))
    layers.add("idle.dependency", Intervals.of(until[known], stop[known]))
    for line, rest in (("idle.dependency", ~known & queued), ("unexplained", ~known & ~queued)):
        layers.add(line, Intervals.of(start[rest], stop[rest]))
    return Gaps(start=start, stop=stop, ender=ender, blocker=blocker, lines=layers.lines(), calls=_union(calls))


class _GapLayers:
    """Idle time of one thread after the other; each gap is one thread's, so threads do not compete for time."""

    def __init__(self, record: Record) -> None:
        self._host, self._begins = record.host, record.host_begins
        self._loading = record.host.spans(Trait.DATA, [record.training_lane])
        self._parts: dict[str, list[Intervals]] = {}

    def add(self, line: str, span: Intervals) -> None:
        self._parts.setdefault(line, []).append(span)

    def lines(self) -> dict[str, Intervals]:
        return {line: _union(parts) for line, parts in self._parts.items()}

    def take_thread(self, lane: int, region: Intervals, blocked: Intervals) -> Intervals:
        """Split what one launching thread did in its region; return the runtime calls' part of `idle.host`.

        Time is given out once: what one line took, no later line can have.
        """
        host, lanes = self._host, [lane]
        runtime = host.spans(Trait.RUNTIME, lanes)
        layers = (
            ("unexplained", region.clip(_BEFORE_ALL, self._begins)),
            ("idle.data", (host.spans(Trait.DATA, lanes) & region) | (self._loading & region)),
            ("idle.sync", blocked),
            ("idle.alloc", host.spans(Trait.ALLOC, lanes)),
            ("idle.compile", host.spans(Trait.COMPILE, lanes)),
            ("idle.host", runtime),
            ("idle.host", host.spans(Trait.OP, lanes)),
            # Without any recorded op, dispatch and Python cannot be distinguished.
            ("idle.python" if host.having(Trait.OP, lanes).size else "unexplained", region),
        )
        free, called = region, Intervals.empty()
        for line, span in layers:
            taken = free & span
            free -= taken
            self.add(line, taken)
            called = taken if span is runtime else called
        return called


def _union(parts: Sequence[Intervals]) -> Intervals:
    return Intervals.of(*(np.concatenate([getattr(part, edge) for part in parts]) for edge in ("start", "stop")))


def _split_gaps(idle: Intervals, instants: Ns) -> tuple[Ns, Ns]:
    """Cut gaps where an event of no duration ran: what came before it ended there."""
    at = np.searchsorted(idle.start, instants, side="right") - 1
    if not len(idle):
        return idle.start, idle.stop
    inside = (at >= 0) & (instants < idle.stop[at]) & (instants > idle.start[at])
    cuts = np.unique(instants[inside])
    return np.sort(np.concatenate((idle.start, cuts))), np.sort(np.concatenate((idle.stop, cuts)))


def _launch_times(record: Record) -> Ns:
    device = record.device
    if not record.host.start.size:
        return np.full(device.launch.size, NEVER)
    return np.where(device.launch >= 0, record.host.start[device.launch], NEVER)


def _launch_lane(record: Record, rows: Codes) -> Codes:
    launch = np.where(rows >= 0, record.device.launch[rows], -1)
    if not record.host.lane.size:
        return np.full(rows.size, -1, np.int64)
    return np.where(launch >= 0, record.host.lane[launch], -1)


def _enders(record: Record, stop: Ns, latest: Ns) -> tuple[Codes, Ns, Ns]:
    """Return the event that ends each gap, of several the first launched, and when its launch began and was over."""
    device = record.device
    order = np.lexsort((latest, _launch_times(record), device.start))
    starts = device.start[order]
    at = np.minimum(np.searchsorted(starts, stop), starts.size - 1)
    ender = np.where(starts[at] == stop, order[at], -1)
    call = np.where(ender >= 0, device.launch[ender], -1)
    if not record.host.start.size:
        return ender, np.full(stop.size, NEVER), np.full(stop.size, NEVER)
    known = call >= 0
    # A copy to the host is queued early in its call, which then waits for it.
    to_host = np.array([_TO_HOST.search(name) is not None for name in record.names], np.bool_)
    over = np.where(to_host[device.name[ender]], record.host.start[call], record.host.stop[call])
    return ender, np.where(known, record.host.start[call], NEVER), np.where(known, over, NEVER)


def _handed_over(record: Record, start: Ns, stop: Ns, launch: Ns, returned: Ns) -> tuple[Ns, Ns]:
    """Return from when to when, within each gap, the host hands over the work that ends it.

    Clocks of host and device differ by some microseconds, so that work may seem to start before its launch.
    """
    latency = _latency(record)
    begin = np.clip(launch, start, stop)
    arrived = np.where((launch >= start) & (launch < NEVER), np.minimum(launch, stop) + latency, start)
    return begin, np.clip(np.maximum(arrived, returned), begin, stop)


def _latency(record: Record) -> int:
    """Return the smallest time from the start of a launch call to the start of what it launched, in ns."""
    launched = record.device.launch >= 0
    if not launched.any():
        return 0
    latency = record.device.start[launched] - record.host.start[record.device.launch[launched]]
    return max(0, int(latency.min()))


def _latest_launches(record: Record) -> Ns:
    """Return when each device row was launched, or by when at the latest.

    A launch that is not recorded came no later than that of any later event of the same stream, since a stream runs its
    work in order.
    """
    device = record.device
    order = np.lexsort((device.start, device.lane))
    launch = _launch_times(record)
    bound = launch[order]
    for first, last in _runs(device.lane[order]):
        bound[first:last] = np.minimum.accumulate(bound[first:last][::-1])[::-1]
    latest = np.empty_like(bound)
    latest[order] = bound
    return np.where(launch < NEVER, launch, latest)


def _runs(values: Codes) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(values)) + 1
    return list(zip([0, *edges.tolist()], [*edges.tolist(), values.size], strict=True)) if values.size else []


def _refills(record: Record, start: Ns, launch: Ns, lanes: Codes) -> tuple[Codes, Ns]:
    """Return for each gap the call that had blocked on the device when it began, and the first launch after its return.

    Only the launching thread and the training thread count: others block for themselves. A call that had returned
    before the gap began does not count either: it waited for another stream.
    """
    blocker, refilled = np.full(start.size, -1, np.int64), start.copy()
    device = record.device
    launches = np.sort(record.host.start[np.unique(device.launch[device.launch >= 0])])
    blocking = blocking_calls(record)
    by_lane = {lane: blocking[rows] for lane, rows in group_rows(record.host.lane[blocking])}
    nothing = blocking[:0]
    for lane, own in group_rows(lanes):
        both = {lane, record.training_lane}
        rows = np.sort(np.concatenate([by_lane.get(one, nothing) for one in both]))
        if lane < 0 or not rows.size:
            continue
        rows = rows[np.argsort(record.host.start[rows], kind="stable")]
        at = np.searchsorted(record.host.start[rows], start[own], side="right") - 1
        begun, at = own[at >= 0], at[at >= 0]
        last = _running_argmax(record.host.stop[rows])[at]
        returned = record.host.stop[rows[last]]
        following = np.searchsorted(launches, returned)
        first = np.where(following < launches.size, launches[np.minimum(following, launches.size - 1)], NEVER)
        waited = (first > start[begun]) & (returned >= start[begun] - CLOCK_SKEW)
        blocker[begun[waited]] = rows[last[waited]]
        refilled[begun[waited]] = np.minimum(first, launch[begun])[waited]
    return blocker, refilled


def _running_argmax(values: Ns) -> Codes:
    """Return the place of the largest value so far."""
    new = values >= np.maximum.accumulate(values)
    return np.maximum.accumulate(np.where(new, np.arange(values.size), 0))


def blocking_calls(record: Record) -> Codes:
    """Return calls that wait for the device.

    These are calls with such a name, and copies through pageable memory that returned only after the copy had ended.
    Other asynchronous copies may end before their call returns although the host did not wait.
    """
    host, device = record.host, record.device
    through_pages = np.array([_PAGEABLE.search(name) is not None for name in record.names], np.bool_)
    copies = np.flatnonzero((device.kind == MEMCPY) & (device.launch >= 0))
    copies = copies[through_pages[device.name[copies]]]
    calls = device.launch[copies]
    return np.union1d(host.having(Trait.SYNC), calls[host.stop[calls] >= device.stop[copies]])
