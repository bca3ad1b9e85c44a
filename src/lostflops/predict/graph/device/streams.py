"""Work on a device's streams, in order, and what a kernel waits for between its launch and its start.

A kernel starts when its launch has arrived, its stream is free, and everything else that its stream waits for is done.
The recording gives the time of each cause only where that cause held the kernel back, and at most as long as hardware
needs for it: a longer delay is another task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from lostflops.account.ledger.record import COMM, KERNEL, MEMCPY, Codes, Flags, Ns, Record, distinct

NEVER: Final = np.iinfo(np.int64).max
SOON: Final = 20_000
"""Work that starts within this time after an event, in ns, may be its consequence: longer than hardware takes to start
a queued kernel."""
_UNTYPICAL: Final = 1_500
"""Assumed gap between two kernels of a stream, in ns, if no recorded kernel had been queued."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """Device rows in the order of their streams; all columns are in that order."""

    row: Codes
    """Row in the device's record."""
    lane: Codes
    start: Ns
    stop: Ns
    kind: Codes
    """Kind of work; memsets count as copies."""
    launch: Codes
    called: Ns
    """When it was launched, or the latest possible time if that was not recorded."""
    before: Codes
    """Place before it on its stream, -1 if it is the first."""
    queued: Flags
    """Whether its launch had arrived when the place before it ended."""
    latency: Ns
    """Usual time from launch to start of its kind."""

    @property
    def observed_gap(self) -> Ns:
        """Time since the stop of the place before, 0 for the first of a stream."""
        gap: Ns = np.where(self.before >= 0, self.start - self.stop[self.before], 0)
        return gap

    @property
    def is_launch_lost(self) -> Flags:
        """Whether a place has no recorded launch although an earlier one of its stream has: places before the first
        recorded launch of their stream were launched before the recording began."""
        begun = [np.maximum.accumulate(self.launch[first:last]) >= 0 for first, last in self.bounds()]
        return np.concatenate([np.empty(0, np.bool_), *begun]) & (self.launch < 0)

    def bounds(self) -> list[tuple[int, int]]:
        """Return where each stream begins and ends."""
        edges = np.flatnonzero(np.diff(self.lane)) + 1
        return list(zip([0, *edges.tolist()], [*edges.tolist(), self.lane.size], strict=True))


def streams(record: Record) -> Streams:
    device, host = record.device, record.host
    launched = device.launch >= 0
    called = np.where(launched, host.start[device.launch], NEVER)
    row = np.lexsort((device.stop, called, device.start, device.lane))
    lane, start, stop = device.lane[row], device.start[row], device.stop[row]
    before = np.arange(row.size, dtype=np.int64) - 1
    before[:1] = -1
    before[1:][lane[1:] != lane[:-1]] = -1
    kind = np.where(device.kind[row] == COMM, COMM, np.where(device.kind[row] == KERNEL, KERNEL, MEMCPY))
    made = Streams(
        row=row,
        lane=lane,
        start=start,
        stop=stop,
        kind=kind,
        launch=device.launch[row],
        called=called[row],
        before=before,
        queued=np.zeros(row.size, np.bool_),
        latency=np.zeros(row.size, np.int64),
    )
    low, usual = _latencies(made)
    bound = _by_when(made)
    arrived = np.where(bound < NEVER, bound + low, np.iinfo(np.int64).min)
    queued = (before >= 0) & (arrived <= stop[before])
    return Streams(
        row=row,
        lane=lane,
        start=start,
        stop=stop,
        kind=kind,
        launch=made.launch,
        called=bound,
        before=before,
        queued=queued,
        latency=usual,
    )


def _latencies(made: Streams) -> tuple[Ns, Ns]:
    """Return the smallest and the usual time from launch to start for each kind.

    Clocks of host and device differ by some microseconds, so it may be negative; the return of a call that blocks on
    the device is then recorded too late by as much. If the queue never ran dry, the smallest is queueing, not latency.
    """
    low, usual = np.zeros(made.row.size, np.int64), np.zeros(made.row.size, np.int64)
    known = made.launch >= 0
    took = made.start - np.where(known, made.called, 0)
    free = made.called > np.where(made.before >= 0, made.stop[made.before], np.iinfo(np.int64).min)
    for kind in distinct(made.kind):
        own = known & (made.kind == kind)
        if not own.any():
            continue
        least = min(int(np.quantile(took[own], 0.01, method="lower")), SOON)
        prompt = took[own & free & (took < least + 2 * SOON)]
        typical = int(np.quantile(prompt, 0.5, method="lower")) if prompt.size else least
        low[made.kind == kind] = min(least, typical)
        usual[made.kind == kind] = typical
    return low, usual


def _by_when(made: Streams) -> Ns:
    """Return by when each place was launched. A launch that was not recorded came no later than the next one of its
    stream. Places before all recorded launches of their stream were launched before the recording began, most likely in
    the order in which they started."""
    bound, leads = made.called.copy(), np.zeros(made.row.size, np.bool_)
    for first, last in made.bounds():
        bound[first:last] = np.minimum.accumulate(bound[first:last][::-1])[::-1]
        leads[first:last] = np.maximum.accumulate(made.launch[first:last]) < 0
    early = np.flatnonzero(leads)
    known = made.called[made.launch >= 0]
    begun = min(int(known.min()) if known.size else NEVER, int(made.start.min()))
    bound[early[np.argsort(made.start[early], kind="stable")]] = begun - early.size + np.arange(early.size)
    return np.where(made.launch >= 0, made.called, bound)


def usual_gap(made: Streams) -> int:
    """Return the usual time between two kernels of a stream if the second was queued, in ns."""
    close = made.queued & (made.observed_gap < SOON) & (made.observed_gap >= 0)
    return int(np.median(made.observed_gap[close])) if close.any() else _UNTYPICAL


class Needs(NamedTuple):
    """Times that each place needs before it starts, in ns."""

    gap: Ns
    """After the place before it on its stream."""
    delay: Ns
    """After the start of the call that launched it."""
    hold: Ns
    """Further wait although nothing that was recorded held it back."""


def needs(made: Streams, call_time: Ns, held: Flags) -> Needs:
    """Compute the times that each place needs. `call_time` is the rest of the launching call from the launch on; `held`
    says whether another stream held a place back.

    The recorded time counts for the cause that held the place back: its stream if the launch had arrived before, else
    the launch. A launch may last until its call returns: the first launch of a kernel loads it, for up to seconds.
    """
    known, first = made.launch >= 0, made.before < 0
    least, observed = usual_gap(made), made.observed_gap
    by_stream = ~first & made.queued & ~held
    gap = np.where(by_stream, observed, np.minimum(observed, least))
    took = np.where(known, made.start - np.where(known, made.called, 0), 0)
    by_launch = known & ~made.queued & ~held
    most = call_time + np.maximum(made.latency, 0) + SOON
    delay = np.where(by_launch, np.minimum(took, most), np.minimum(took, made.latency))
    hold = np.where(by_launch, took - delay, 0)
    long = by_stream & (observed > SOON)
    hold[long], gap[long] = observed[long] - least, least
    return Needs(np.where(first, 0, gap), delay, hold)
