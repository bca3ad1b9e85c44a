"""Waits of the training thread for collectives, on a rank without a device.

A stretch in which communication runs and the thread neither computes nor loads is a wait, up to the last collective
that ends in it; if none ends in it, the thread did something that was not recorded. A gradient reduction that happens
to end in a short pause between two ops was not waited for there.

A collective without a wait is due where it was used at the latest: a gradient reduction where its group is waited for
next, or at the end of its step; any other where it ended, since what comes next may need it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from lostflops.account.ledger.record import Flags, Ns
from lostflops.predict.graph.threads.calls import HostCalls
from lostflops.store.intervals import Intervals

LATE_USE: Final = ("all_reduce", "reduce_scatter")
"""Operations whose result is used when the step ends, not when they do."""
PAUSE: Final = 100_000
"""Shorter stretches without compute, in ns, are pauses between two ops."""
LONG_WAIT: Final = 1_000_000
"""Stretches at least this long, in ns, are waits and not pauses."""
REACTION: Final = 1_000_000
"""A thread that waited continues within this time, in ns."""
SLOW_REACTION: Final = 0.1
"""Or within this part of the time it waited: where cores are busy, a thread gets one some milliseconds later."""


class Wait(NamedTuple):
    """A wait of the thread for some calls; `start` and `stop` are equal if the calls had ended before."""

    start: int
    stop: int
    calls: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Thread:
    """Recorded activity of the training thread."""

    busy: Intervals
    """When it made progress by itself."""
    ops: Ns
    """When ops began."""
    others: Ns
    """When ops began that are not communication."""
    step_start: Ns
    step_stop: Ns


def waits(calls: HostCalls, handed: Ns, thread: Thread) -> list[Wait]:
    """Return all waits in order of time. `handed` is when the op that asked for each call returned."""
    found = list(_find_waits(calls, handed, thread))
    awaited = {call for wait in found for call in wait.calls}
    hidden = np.array([call for call in range(len(calls)) if call not in awaited], np.int64)
    return sorted((*found, *_dues(calls, hidden, found, thread)))


def found_late(calls: HostCalls, handed: Ns, thread: Thread, waited: list[Wait]) -> Ns:
    """Return sends and receives that may have ended earlier: the thread did other things, and hardly waited for
    them."""
    took = np.zeros(len(calls), np.int64)
    for wait in waited:
        took[list(wait.calls)] = wait.stop - wait.start
    return np.flatnonzero(
        calls.transfer & (took < PAUSE) & (thread.busy.within(np.minimum(handed, calls.stop), calls.stop) > 0)
    )


def as_noticed(calls: HostCalls, thread: Thread) -> HostCalls:
    """Return the calls with ends that match the thread's waits. A worker reports that a reduction is done, and only
    then records its end: by that time the thread may have gone on. Such calls end with the wait, even if the thread has
    begun to wait for another call by then."""
    exposed = Intervals.of(calls.start, calls.stop) - thread.busy
    waits = exposed.stop - exposed.start >= LONG_WAIT
    start, stop = exposed.start[waits], exposed.stop[waits]
    at = np.searchsorted(stop, calls.stop, "left") - 1
    if not stop.size:
        return calls
    over = (at >= 0) & (calls.start < stop[at]) & np.isin(calls.op, LATE_USE)
    over &= calls.stop - stop[at] <= np.maximum(REACTION, SLOW_REACTION * (stop[at] - start[at]))
    later = np.searchsorted(start, calls.stop, "left") - 1
    over &= (later <= at) | (calls.stop - start[later] <= 2 * REACTION)
    return replace(calls, stop=np.where(over, stop[at], calls.stop))


def _find_waits(calls: HostCalls, handed: Ns, thread: Thread) -> list[Wait]:
    """Return which calls were waited for, and when; a call that starts after others have ended was waited for
    separately."""
    inside = Intervals.of(thread.step_start, thread.step_stop)
    exposed = (Intervals.of(calls.start, calls.stop) & inside) - thread.busy
    at = np.searchsorted(exposed.start, calls.stop, "left") - 1
    held = at >= 0
    held[held] = calls.stop[held] <= exposed.stop[at[held]]
    began = np.zeros(len(calls), np.int64)
    began[held] = exposed.start[at[held]]
    held[held] = _select_awaited_calls(calls, handed, began, thread)[held]
    ended = np.flatnonzero(held)
    ended = ended[np.lexsort((calls.stop[ended], at[ended]))]
    found: list[Wait] = []
    for rows in np.split(ended, np.flatnonzero(np.diff(at[ended])) + 1) if ended.size else ():
        found += _split_stretch(calls, rows, int(exposed.start[at[rows[0]]]))
    starts, stops = (np.array(times, np.int64) for times in ([w.start for w in found], [w.stop for w in found]))
    begins = after_edges(thread.step_start, thread.step_stop, starts, stops)
    return [wait._replace(start=begin) for wait, begin in zip(found, begins.tolist(), strict=True)]


def after_edges(step_start: Ns, step_stop: Ns, start: Ns, stop: Ns) -> Ns:
    """Return when each wait starts, at the earliest at the last edge of a step in it: time before the edge counts as
    progress, so that the edge stays where it was recorded."""
    edges = np.unique(np.concatenate((step_start, step_stop)))
    last = edges[np.maximum(np.searchsorted(edges, stop, "right") - 1, 0)]
    return np.where(last <= stop, np.maximum(start, last), start)


def _select_awaited_calls(calls: HostCalls, handed: Ns, began: Ns, thread: Thread) -> Flags:
    """Return whether the thread waited for each call that ended while it computed nothing since `began`. It did if the
    result is used at once, or if it began no other op since it asked; it is likely if the wait was long and the thread
    went on soon after."""
    late_use = np.isin(calls.op, LATE_USE)
    directly = np.searchsorted(thread.others, handed, "right") >= np.searchsorted(thread.others, calls.stop, "left")
    following = np.searchsorted(thread.ops, calls.stop, "left")
    next_op = np.concatenate((thread.ops, [np.iinfo(np.int64).max]))[following]
    waited = calls.stop - began
    meant: Flags = (waited >= PAUSE) & (next_op - calls.stop <= np.maximum(REACTION, SLOW_REACTION * waited))
    certain: Flags = ~late_use | directly | meant
    return certain


def _split_stretch(calls: HostCalls, rows: Ns, began: int) -> list[Wait]:
    """Return the waits of one stretch; `rows` are the calls that end in it, in the order of their ends."""
    found: list[Wait] = []
    since, done = began, list[int]()
    for call in rows.tolist():
        start = int(calls.start[call])
        if done and start >= int(calls.stop[done[-1]]):
            found.append(Wait(since, int(calls.stop[done[-1]]), tuple(done)))
            since, done = start, []
        done.append(call)
    return [*found, Wait(since, int(calls.stop[done[-1]]), tuple(done))]


def _dues(calls: HostCalls, hidden: Ns, found: list[Wait], thread: Thread) -> list[Wait]:
    by_group: dict[str, list[int]] = {}
    for wait in found:
        for group in {calls.group[call] for call in wait.calls}:
            by_group.setdefault(group, []).append(wait.stop)
    ends = {group: np.array(sorted(times), np.int64) for group, times in by_group.items()}
    none = np.empty(0, np.int64)
    dues = []
    for call in hidden.tolist():
        stop = int(calls.stop[call])
        time = stop
        if calls.op[call] in LATE_USE:
            later = (ends.get(calls.group[call], none), thread.step_stop)
            time = min(
                (int(times[np.searchsorted(times, stop)]) for times in later if times.size and times[-1] >= stop),
                default=stop,
            )
        dues.append(Wait(time, time, (call,)))
    return dues
