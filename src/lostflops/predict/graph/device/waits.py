"""Waits between streams, inferred because traces do not contain the work that an event was recorded after.

If a queued kernel started right after something ended on another stream, it waited for that. A wait that was over
before is not visible, but follows from how PyTorch works: a collective waits for what its caller launched before it,
and `cudaStreamWaitEvent` before the launch of a kernel makes it wait for the collectives and copies launched before. In
a trace without such calls, the first work after a backward pass waits for all other streams.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from lostflops.account.ledger.phases import BACKWARD
from lostflops.account.ledger.record import COMM, KERNEL, Codes, Flags, Ns, Record, distinct
from lostflops.predict.graph.device.streams import SOON, Streams, usual_gap

_ROUNDED: Final = 1_000
"""Error of recorded times, in ns: old traces count whole microseconds."""
_COLLECTIVE: Final = 400_000
"""Longest time, in ns, from what an NCCL kernel waits for to its recorded start: it was 121 to 157 us on V100, and on
H100 79 us in one run and 340 us in another."""


class DeviceWaits(NamedTuple):
    """Waits of one stream for another, as places in `Streams`: `dst` waited for `src`."""

    src: Codes
    dst: Codes
    delay: Ns
    """Time that `dst` needed after `src`, in ns."""
    held: Flags
    """Whether nothing held a place back longer than another stream did."""


def waits(record: Record, made: Streams, phase: Codes) -> DeviceWaits:
    """Find which places waited for which; `phase` is the phase in which each place was launched."""
    latest = Latest(made)
    callers = _callers(record, made)
    source = _find_exposed_waits(made, latest, callers)
    held = source >= 0
    dst = np.flatnonzero(held)
    src, delay = source[dst], np.maximum(made.start[dst] - made.stop[source[dst]], 0)
    usual = int(np.median(delay)) if delay.size else 0
    pairs = [(src, dst), callers, *_find_hidden_waits(record, made, latest, phase)]
    src, dst = (np.concatenate(column) for column in zip(*pairs, strict=True))
    key = np.unique(src * made.row.size + dst)
    src, dst = key // max(made.row.size, 1), key % max(made.row.size, 1)
    between = made.start[dst] - made.stop[src]
    shown = held[dst] & (source[dst] == src)
    return DeviceWaits(src, dst, np.where(shown, between, np.minimum(between, usual)), held)


class Latest:
    """Lookup of what was launched last on each stream before one instant and had ended by another. What has lost its
    launch counts from the earliest possible time, the launch before it on its stream: it ended at the right moment."""

    def __init__(self, made: Streams) -> None:
        self._made = made
        earliest = np.where(made.is_launch_lost, np.iinfo(np.int64).min, made.called)
        self._streams: list[tuple[int, Ns, Ns, Ns]] = []
        for first, last in made.bounds():
            launches, stops, latest = (
                np.maximum.accumulate(times[first:last]) for times in (earliest, made.stop, made.called)
            )
            self._streams.append((first, launches, stops, latest))
        self.lanes = [int(made.lane[first]) for first, _ in made.bounds()]

    def on(self, stream: int, called: Ns, ended: Ns) -> Codes:
        """Return the last place on a stream that was launched before `called` and ended by `ended`, or -1."""
        first, launches, stops, _ = self._streams[stream]
        place = np.minimum(np.searchsorted(launches, called), np.searchsorted(stops, ended, side="right")) - 1
        return np.where(place >= 0, place + first, -1)

    def find_launched(self, stream: int, called: Ns, ended: Ns) -> Codes:
        """Return the last place on a stream that was launched before `called`, or -1; what has lost its launch counts
        only if it had ended by `ended`."""
        first, launches, stops, latest = self._streams[stream]
        sure = np.maximum(np.searchsorted(latest, called), np.searchsorted(stops, ended, side="right"))
        place = np.minimum(np.searchsorted(launches, called), sure) - 1
        return np.where(place >= 0, place + first, -1)


def _find_exposed_waits(made: Streams, latest: Latest, callers: tuple[Codes, Codes]) -> Codes:
    """Return for each place what held it back on another stream, -1 for nothing. A place that followed its own stream
    as closely as usual was not held back, even if something else ended in between."""
    free = np.where(made.before >= 0, made.stop[made.before], np.iinfo(np.int64).min)
    prompt = (made.launch >= 0) & (made.start - made.called <= made.latency + SOON // 2)
    own = made.queued & (made.start - free <= 2 * usual_gap(made))
    asked = np.flatnonzero(~prompt & ~own & (made.start > free))
    soon = np.where(made.kind == COMM, _COLLECTIVE, SOON)
    source, ended = np.full(made.row.size, -1, np.int64), free.copy()
    for stream, lane in enumerate(latest.lanes):
        rows = asked[made.lane[asked] != lane]
        found = latest.on(stream, made.called[rows], made.start[rows] + _ROUNDED)
        later = (found >= 0) & (made.stop[found] > ended[rows]) & (made.start[rows] - made.stop[found] <= soon[rows])
        source[rows[later]] = found[later]
        ended[rows[later]] = made.stop[found[later]]
    src, dst = callers
    late = ~prompt[dst] & (made.stop[src] > ended[dst]) & (made.start[dst] - made.stop[src] <= _COLLECTIVE)
    source[dst[late]] = src[late]
    return source


def _find_hidden_waits(record: Record, made: Streams, latest: Latest, phase: Codes) -> list[tuple[Codes, Codes]]:
    pairs = []
    names = np.array(["StreamWaitEvent" in name for name in record.names], np.bool_)
    calls = np.flatnonzero(names[record.host.name])
    waiting = _after_calls(record, made, calls) if calls.size else _after_backward(made, phase)
    for stream, lane in enumerate(latest.lanes):
        rows = waiting[made.lane[waiting] != lane]
        found = latest.on(stream, made.called[rows], made.start[rows] + _ROUNDED)
        good = (found >= 0) & ((made.kind[found] != KERNEL) | (calls.size == 0))
        pairs.append((found[good], rows[good]))
    return pairs


def _callers(record: Record, made: Streams) -> tuple[Codes, Codes]:
    """Return pairs of work and a collective: the last other work that the collective's thread launched before it, if
    that is on another stream and ended in time."""
    thread = np.where(made.launch >= 0, record.host.lane[made.launch], -1)
    order = np.lexsort((made.called, thread))
    order = order[thread[order] >= 0]
    is_comm = made.kind[order] == COMM
    last = np.maximum.accumulate(np.where(is_comm, -1, np.arange(order.size))) if order.size else np.empty(0, np.int64)
    at = np.flatnonzero(is_comm & (last >= 0))
    dst, src = order[at], order[last[at]]
    good = (thread[src] == thread[dst]) & (made.stop[src] <= made.start[dst] + _ROUNDED)
    good &= made.lane[src] != made.lane[dst]
    return src[good], dst[good]


def _after_calls(record: Record, made: Streams, calls: Codes) -> Codes:
    """Return the work, other than collectives, that a thread launches next after it made a stream wait."""
    host, found = record.host, [np.empty(0, np.int64)]
    thread = np.where(made.launch >= 0, host.lane[made.launch], -1)
    for lane in distinct(host.lane[calls]):
        own = np.flatnonzero(thread == lane)
        own = own[np.argsort(made.called[own], kind="stable")]
        at = np.unique(np.searchsorted(made.called[own], host.start[calls[host.lane[calls] == lane]]))
        found.append(own[at[at < own.size]])
    places = np.concatenate(found)
    computing: Codes = places[made.kind[places] != COMM]
    return computing


def _after_backward(made: Streams, phase: Codes) -> Codes:
    """Return the first work after each backward pass that is not a collective."""
    known = np.flatnonzero((made.launch >= 0) & (made.kind != COMM))
    order = known[np.argsort(made.called[known], kind="stable")]
    ends = np.flatnonzero((phase[order][:-1] == BACKWARD) & (phase[order][1:] != BACKWARD)) + 1
    return order[ends]
