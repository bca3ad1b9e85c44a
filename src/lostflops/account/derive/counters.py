"""Quantities of a rank over time, as counters of the timeline: memory in use, the launch queue, throughput.

Memory is that of the device that the rank computes on: the accelerator if it has one, else the CPU. It is the
allocator's total after each allocation and free, or the sum that `lostflops memory` shows if the total is not recorded.
Throughput is that of each step on this rank: tokens, else samples per second as the collector timed them, else steps
per second from the steps of the trace.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from lostflops.account.align.queue_depth import QueueDepth, read_queue
from lostflops.account.ledger.record import steps_of
from lostflops.account.ledger.strips import edges
from lostflops.account.ledger.windows import step_window
from lostflops.account.memory.devices import computing_devices
from lostflops.account.memory.events import CPU, DEVICE, device_name
from lostflops.account.memory.read import memories
from lostflops.core.pictures import Counter
from lostflops.core.units import format_ns

if TYPE_CHECKING:
    from lostflops.account.align.lane_events import Extent
    from lostflops.account.align.one_clock import OneClock
    from lostflops.store.run import Run

Numbers = npt.NDArray[np.int64]

MOST_POINTS: Final = 2_000
"""Points that a counter has at most."""
MOST_RANKS: Final = 64
"""Counters are shown of at most this many ranks at once."""
MOST_COUNTERS: Final = 3
"""Counters that a rank has at most."""
BYTES_A_POINT: Final = 6
"""Approximate size of a point in a page."""
_UNKNOWN: Final = -1
_RATE_PARTS: Final = 1_000_000
"""Rates are stored as whole numbers of such parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterSeries:
    """All points of a counter, on the common clock; a value holds until the next point."""

    name: str
    unit: str
    time: Numbers
    value: Numbers
    per: int = 1
    keeps_lowest: bool = False
    """Whether lowest values matter as much as highest ones."""

    def within(self, asked: Extent, most: int = MOST_POINTS) -> tuple[Numbers, Numbers, str]:
        """Return at most `most` points of an extent, and which they are, in words, if these are not all.

        The value that holds at its beginning is a point, and the last point says that nothing is known after its end.
        If there are more points, the highest value in each of `most` equal bins is kept, from the beginning of the bin
        on. Where lowest values matter too, the lowest and the highest point in each of half as many bins are kept, each
        at its own time. Either way peaks are exact.
        """
        first = max(int(np.searchsorted(self.time, asked.start, side="right")) - 1, 0)
        last = int(np.searchsorted(self.time, asked.stop, side="left"))
        time, value = np.maximum(self.time[first:last], asked.start), self.value[first:last]
        changes = np.diff(value, prepend=_UNKNOWN - 1) != 0
        time, value, thinned = time[changes], value[changes], ""
        room = max(most - 1, 2)
        if time.size > room:
            bins = min(room // 2 if self.keeps_lowest else room, asked.stop - asked.start)
            keep = _keep_extremes if self.keeps_lowest else _keep_highest
            time, value = keep(time, value, edges(asked.start, asked.stop, bins))
            which = "lowest and highest" if self.keeps_lowest else "highest"
            thinned = f"{which} in each {format_ns((asked.stop - asked.start) // bins)}"
        if time.size:
            time, value = np.append(time, asked.stop), np.append(value, _UNKNOWN)
        return time, value, thinned


@dataclass(frozen=True, slots=True)
class RankCounters:
    rank: int
    series: tuple[CounterSeries, ...]
    queue: QueueDepth

    @property
    def points(self) -> int:
        return sum(one.time.size for one in self.series)


def read_counters(run: Run, clock: OneClock, rank: int) -> RankCounters:
    """Read all counters of a rank that were recorded, over the whole run."""
    queue = read_queue(run, rank)
    found = [_memory(run, clock, rank)]
    if queue.time.size:
        time = clock.to_common(rank, queue.time)
        found.append(CounterSeries(name="launch queue", unit="count", time=time, value=queue.depth))
    found.append(_throughput(run, clock, rank))
    return RankCounters(rank, tuple(one for one in found if one is not None), queue)


def counters_within(
    run: Run, counted: Iterable[RankCounters], asked: Extent, *, origin: int, most: int = MOST_POINTS
) -> tuple[Counter, ...]:
    """Return the counters in an extent; one without a point in it has none."""
    rows = {rank: row for row, rank in enumerate(run.ranks)}
    found = []
    for one in counted:
        for series in one.series:
            time, value, thinned = series.within(asked, most)
            points = (time - origin).tolist(), value.tolist()
            found.append(Counter(rows[one.rank], series.name, series.unit, *points, series.per, thinned))
    return tuple(found)


def _keep_highest(time: Numbers, value: Numbers, bounds: Numbers) -> tuple[Numbers, Numbers]:
    """Return the highest value in each bin, from its beginning on, except where nothing is known or changes."""
    first = np.maximum(np.searchsorted(time, bounds[:-1], side="right") - 1, 0)
    stop = np.searchsorted(time, bounds[1:], side="left")
    known = stop > first
    # Pairs of a bin's first place and the place after its last; only every second sum is of a bin.
    pairs = np.column_stack((first, stop))[known].ravel()
    highest = np.maximum.reduceat(np.append(value, _UNKNOWN), pairs)[::2]
    changes = np.diff(highest, prepend=_UNKNOWN - 1) != 0
    return np.maximum(bounds[:-1][known], time[0])[changes], highest[changes]


def _keep_extremes(time: Numbers, value: Numbers, bounds: Numbers) -> tuple[Numbers, Numbers]:
    """Return the lowest and the highest known point of each bin, each at its own time."""
    time, value = time[value >= 0], value[value >= 0]
    bins = np.searchsorted(bounds, time, side="right")
    order = np.lexsort((value, bins))
    first = np.flatnonzero(np.diff(bins[order], prepend=-1))
    last = np.append(first[1:], time.size) - 1
    kept = np.unique(np.concatenate((order[first], order[last])))
    return time[kept], value[kept]


def _memory(run: Run, clock: OneClock, rank: int) -> CounterSeries | None:
    device = computing_devices(run, [rank]).get(rank)
    if device is None:
        return None
    kind, index = device
    columns = run.columns(
        f"select time, bytes, coalesce(allocated, {_UNKNOWN}) as total "
        f"from (select *, {DEVICE} from memory where rank = {int(rank)}) "
        f"where kind = {kind} and index = {index} and bytes <> 0 and time is not null"
    )
    order = np.argsort(columns["time"], kind="stable")
    time, change, total = (np.asarray(columns[name]).astype(np.int64)[order] for name in columns)
    base = total[0] - change[0]
    if kind == CPU or (total == _UNKNOWN).any():
        own = next(one for one in memories(run, [rank]) if one.device == device_name(device))
        time, total, base = own.time, own.total, own.base
    # What was allocated before the first event may be the peak.
    times = clock.to_common(rank, np.append(time[0] - 1, time))
    return CounterSeries(name="memory", unit="bytes", time=times, value=np.append(base, total))


def _throughput(run: Run, clock: OneClock, rank: int) -> CounterSeries | None:
    for what in ("tokens", "samples"):
        found = run.columns(
            f"select start, stop, {what} as done from timings where rank = {int(rank)} and stop > start "
            f"and {what} is not null order by start"
        )
        start, stop, done = (np.asarray(found[name]).astype(np.int64) for name in found)
        if start.size:
            return _rates(clock, rank, what, (start, stop), done)
    steps = next(steps_of(run, [rank]))
    own = step_window(steps, steps.on_device)
    timed = own.stop > own.start
    spans = own.start[timed], own.stop[timed]
    return _rates(clock, rank, "steps", spans, np.ones(spans[0].size, np.int64)) if timed.any() else None


def _rates(clock: OneClock, rank: int, what: str, spans: tuple[Numbers, Numbers], done: Numbers) -> CounterSeries:
    """Return the rate of each step; nothing is known between a step and a later one that does not follow at once."""
    start, stop = spans
    rate = np.rint(done * (1e9 * _RATE_PARTS) / (stop - start)).astype(np.int64)
    ends = np.append(stop[:-1] < start[1:], True)
    time = np.column_stack((start, stop)).ravel()
    value = np.column_stack((rate, np.full(rate.size, _UNKNOWN))).ravel()
    kept = np.column_stack((np.ones(rate.size, np.bool_), ends)).ravel()
    times = clock.to_common(rank, time[kept])
    return CounterSeries(
        name=f"{what}/s", unit="rate", time=times, value=value[kept], per=_RATE_PARTS, keeps_lowest=True
    )
