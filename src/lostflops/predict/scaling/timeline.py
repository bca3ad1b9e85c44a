"""A rank's steps as a replay needs them: its own progress, where it issues collectives, and where it waits for them.

Progress is all time that is not spent waiting for communication: compute, copies, idle time. A stretch in which
communication runs and nothing computes is a wait up to the last collective that ends in it; if none ends in it, the
rank did something that was not recorded, and that is progress. A gradient reduction that compute hid is awaited where
its group is next, or at the end of its step; any other hidden collective where it ended, since what comes next may need
it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from lostflops.account.ledger.partition import Partition
from lostflops.predict.graph.links import shares, weigh
from lostflops.predict.graph.threads.waits import LATE_USE
from lostflops.store.intervals import Intervals


class StepCall(NamedTuple):
    """A collective as it was recorded, cut to the window."""

    start: int
    ready: int
    """When the last member has arrived; a guess if `met` is false."""
    stop: int
    lane: int
    group: str
    op: str
    size: int | None
    met: bool = True
    """Whether all members were recorded."""


@dataclass(frozen=True, slots=True)
class Queued:
    """A collective to replay: it waits for members, then moves data."""

    lane: int
    wait: float
    alone: float
    """Time to move data with the link to itself."""
    link: str | None
    """Calls on the same link share it; None for a link of its own."""


Kind = Literal["issue", "due", "edge", "await", "edge within"]
_ORDER: Final[tuple[Kind, ...]] = ("issue", "due", "edge", "await", "edge within")
"""Order of points at the same instant."""


class Point(NamedTuple):
    """A point that a rank reaches after some progress."""

    compute: float
    """Compute since the last point."""
    other: float
    """Other progress since the last point."""
    kind: Kind
    calls: tuple[int, ...]
    """Calls to issue; or calls that are awaited or due, which end before progress goes on."""
    delay: float
    """Time after which calls are issued; for an edge of a step within a wait, the part of the wait before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimeline:
    """Steps of one rank, ready to be replayed."""

    steps: tuple[int, ...]
    measured: npt.NDArray[np.float64]
    compute: npt.NDArray[np.float64]
    """Compute in each step."""
    other: npt.NDArray[np.float64]
    """Other progress in each step."""
    calls: tuple[StepCall, ...]
    queued: tuple[Queued, ...]
    points: tuple[Point, ...]
    """Edges among them are start and stop of each step, in order."""


class _Wait(NamedTuple):
    start: int
    stop: int
    calls: list[int]


def timeline(made: Partition, calls: Sequence[StepCall], link: Callable[[StepCall], str | None]) -> StepTimeline:
    """Return the timeline of the steps of a partition, with its communication."""
    window = made.window
    first, last = int(window.start[0]), int(window.stop[-1])
    cut = [_clip_call(call, first, last) for call in calls]
    own = tuple(sorted(call for call in cut if call.stop > call.start))
    waits = list(_waits(made.comm - made.compute, own))
    waiting = Intervals.of([wait.start for wait in waits], [wait.stop for wait in waits])
    events = _events(own, waits, window.start.tolist(), window.stop.tolist())
    computed, other = _progress(np.array([time for time, *_ in events], np.int64), first, made.compute, waiting)
    points = tuple(
        Point(a, b, kind, awaited, delay)
        for a, b, (_, kind, awaited, delay) in zip(
            np.diff(computed, prepend=0).tolist(), np.diff(other, prepend=0).tolist(), events, strict=True
        )
    )
    inside = made.compute.within(window.start, window.stop)
    measured = window.stop - window.start
    rest = measured - inside - waiting.within(window.start, window.stop)
    return StepTimeline(
        steps=window.number,
        measured=measured.astype(np.float64),
        compute=inside.astype(np.float64),
        other=rest.astype(np.float64),
        calls=own,
        queued=_queue_calls(own, [link(call) for call in own]),
        points=points,
    )


def _clip_call(call: StepCall, first: int, last: int) -> StepCall:
    start, ready, stop = (min(max(time, first), last) for time in (call.start, call.ready, call.stop))
    return call._replace(start=start, ready=ready, stop=stop)


def _waits(exposed: Intervals, calls: Sequence[StepCall]) -> Iterator[_Wait]:
    """Yield when progress waits, and for which calls; a call that starts after others have ended was waited for
    separately."""
    starts = [call.start for call in calls]
    by_stop = sorted(range(len(calls)), key=lambda i: calls[i].stop)
    stops = [calls[i].stop for i in by_stop]
    for begin, end in zip(exposed.start.tolist(), exposed.stop.tolist(), strict=True):
        ended = by_stop[bisect_right(stops, begin) : bisect_right(stops, end)]
        begun = starts[bisect_right(starts, begin) : bisect_left(starts, end)]
        since, done = begin, list[int]()
        # Ends before starts of the same instant.
        for time, call in sorted([(calls[i].stop, i) for i in ended] + [(time, len(calls)) for time in begun]):
            if call < len(calls):
                done.append(call)
            elif done:
                yield _Wait(since, calls[done[-1]].stop, done)
                since, done = time, []
        if done:
            yield _Wait(since, calls[done[-1]].stop, done)


_Event = tuple[int, Kind, tuple[int, ...], float]


def _events(
    calls: Sequence[StepCall], waits: Sequence[_Wait], starts: Sequence[int], stops: Sequence[int]
) -> list[_Event]:
    """Return points in the order of time. Events during a wait are placed where the wait began, with a delay."""
    begins = [wait.start for wait in waits]

    def within(time: int) -> _Wait | None:
        at = bisect_right(begins, time) - 1
        return waits[at] if at >= 0 and time < waits[at].stop else None

    def issued(time: int, call: int) -> _Event:
        wait = within(time)
        return (wait.start, "issue", (call,), time - wait.start) if wait else (time, "issue", (call,), 0)

    def edge(time: int) -> _Event:
        wait = within(time)
        if wait is None or time == wait.start:
            return time, "edge", (), 0
        return wait.start, "edge within", (), (time - wait.start) / (wait.stop - wait.start)

    found = [issued(call.start, i) for i, call in enumerate(calls)]
    found += [edge(time) for pair in zip(starts, stops, strict=True) for time in pair]
    found += [(wait.start, "await", tuple(wait.calls), 0) for wait in waits]
    found += _deadlines(calls, waits, stops)
    return sorted(found, key=lambda event: (event[0], _ORDER.index(event[1]), event[3], event[2]))


def _deadlines(calls: Sequence[StepCall], waits: Sequence[_Wait], stops: Sequence[int]) -> Iterator[_Event]:
    """Yield where calls that compute hid are needed at the latest."""
    awaited = {i for wait in waits for i in wait.calls}
    by_group: dict[str, list[int]] = {}
    for wait in waits:
        for group in {calls[i].group for i in wait.calls}:
            by_group.setdefault(group, []).append(wait.start)
    for i, call in enumerate(calls):
        if i not in awaited:
            yield _find_deadline(call, by_group.get(call.group, []), stops), "due", (i,), 0


def _find_deadline(call: StepCall, waits: Sequence[int], stops: Sequence[int]) -> int:
    if call.op not in LATE_USE:
        return call.stop
    later = [times[at] for times in (waits, stops) if (at := bisect_left(times, call.stop)) < len(times)]
    return min(later, default=call.stop)


def _progress(
    times: npt.NDArray[np.int64], first: int, compute: Intervals, waiting: Intervals
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return compute and other progress from `first` to each time."""
    since = np.full(times.size, first, np.int64)
    computed = compute.within(since, times)
    other = times - first - computed - waiting.within(since, times)
    return computed.astype(np.float64), other.astype(np.float64)


def _queue_calls(calls: Sequence[StepCall], links: Sequence[str | None]) -> tuple[Queued, ...]:
    alone = np.array([call.stop - call.ready for call in calls], np.float64)
    for link in {link for link in links if link is not None}:
        rows = [i for i, own in enumerate(links) if own == link]
        ready, stop, size = (
            np.array(column, np.int64)
            for column in zip(*((calls[i].ready, calls[i].stop, calls[i].size or 0) for i in rows), strict=True)
        )
        alone[rows] = shares(ready, stop, weigh(size))
    return tuple(
        Queued(call.lane, float(call.ready - call.start), own, link)
        for call, own, link in zip(calls, alone.tolist(), links, strict=True)
    )
