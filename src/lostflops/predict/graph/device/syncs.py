"""Calls that return when the device is done: what each waited for, and its own cost.

A call waits for work that was launched before it. It waited for the stream whose work ended when it returned. A copy
through pageable memory waits for itself: one from the device for its end, one to the device for its start, since the
host fills the buffer that it is copied from. A launch into a full queue waits for room in it.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import numpy as np

from lostflops.account.ledger.gaps import blocking_calls
from lostflops.account.ledger.record import Codes, Flags, Ns, Record
from lostflops.predict.graph.device.host import HostTasks
from lostflops.predict.graph.device.streams import SOON, Streams
from lostflops.predict.graph.device.waits import Latest
from lostflops.predict.graph.tasks import TaskKind

_ALL: Final = re.compile(r"(?:cuda|hip)DeviceSynchronize|cuCtxSynchronize|(?:cuda|hip)Free$|(?:cu|hip)MemFree(?:_v2)?$")
_ALLOCATION: Final = re.compile(r"(?:cuda|hip)(?:Malloc|HostAlloc|HostMalloc|FreeHost|HostFree)$")
_EVENT: Final = re.compile(r"(?:cuda|hip)EventSynchronize|cuEventSynchronize")
_TO_DEVICE: Final = re.compile(r"HtoD.*Pageable")
_FULL_QUEUE: Final = 500
"""Launches that wait on a stream before a launch can wait for room in its queue: drivers keep 1,024 at most."""
_BLOCKED: Final = 50_000


class Syncs(NamedTuple):
    """The host's tasks including those that block, and what they wait for: place `src` in `Streams` is an input of task
    `dst`."""

    tasks: HostTasks
    """A task that blocks starts when its wait is over."""
    called: Ns
    """When each task was called, for a task that blocks the begin of its wait."""
    src: Codes
    dst: Codes
    delay: Ns
    early: Flags
    """Whether the start of the place counts instead of its end."""
    launch: Codes
    """Task of each host row that launches, -1 for other rows."""
    full: Flags
    """Whether a task waited for room in a queue."""


def with_syncs(record: Record, made: Streams, host: HostTasks, owner: Codes) -> Syncs:
    latest = Latest(made)
    staged, copies = _copies(record, made, host, owner)
    own = np.concatenate((staged[1], copies[1]))
    full = _full(made, host, latest, own)
    pairs = [staged, copies, full, *_pair_named_calls(record, made, host, latest, own)]
    src, dst = (np.concatenate(column) for column in zip(*pairs, strict=True))
    early = np.arange(src.size) < staged[0].size
    done = np.where(early, made.start[src], made.stop[src])
    ended = np.full(host.row.size, np.iinfo(np.int64).min)
    np.maximum.at(ended, dst, done)
    blocks = np.zeros(host.row.size, np.bool_)
    blocks[dst] = True
    returned = np.where(blocks, np.maximum(host.start, np.minimum(ended, host.stop)), host.start)
    return _split_blocking_calls(record, host, _Inputs(src, dst, done, early), returned, (own, full[1], blocks))


class _Inputs(NamedTuple):
    src: Codes
    dst: Codes
    done: Ns
    early: Flags


def _copies(
    record: Record, made: Streams, host: HostTasks, owner: Codes
) -> tuple[tuple[Codes, Codes], tuple[Codes, Codes]]:
    """Return copies whose call waits for their start, and copies whose call waits for their end, each with the call's
    task."""
    task = np.full(record.host.start.size, -1, np.int64)
    task[host.row[host.row >= 0]] = np.flatnonzero(host.row >= 0)
    blocking = np.zeros(record.host.start.size, np.bool_)
    blocking[blocking_calls(record)] = True
    to_device = np.array([_TO_DEVICE.search(name) is not None for name in record.names], np.bool_)
    known = np.flatnonzero(made.launch >= 0)
    at = task[owner[made.launch[known]]]
    known, at = known[at >= 0], at[at >= 0]
    staged = to_device[record.device.name[made.row[known]]] & (made.start[known] <= host.stop[at])
    waits = ~staged & blocking[made.launch[known]] & (made.stop[known] <= host.stop[at] + SOON)
    return (known[staged], at[staged]), (known[waits], at[waits])


def _full(made: Streams, host: HostTasks, latest: Latest, copies: Codes) -> tuple[Codes, Codes]:
    """Return launches that took long while a queue was full, as pairs of the place that ended when they returned and
    the launch."""
    took = host.stop - host.start
    launching = host.kind == TaskKind.LAUNCH
    usual = int(np.median(took[launching])) if launching.any() else 0
    asked = np.setdiff1d(np.flatnonzero(launching & (took > max(_BLOCKED, 5 * usual))), copies)
    src, dst = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for stream in range(len(latest.lanes)):
        last = latest.find_launched(stream, host.start[asked], host.start[asked])
        done = latest.on(stream, host.start[asked], host.start[asked])
        room = latest.on(stream, host.start[asked], host.stop[asked] + SOON // 4)
        waiting = np.where(last >= 0, last - np.maximum(done, 0), 0)
        good = (waiting >= _FULL_QUEUE) & (room >= 0) & (made.stop[room] > host.stop[asked] - SOON)
        src.append(room[good])
        dst.append(asked[good])
    return np.concatenate(src), np.concatenate(dst)


def _pair_named_calls(
    record: Record, made: Streams, host: HostTasks, latest: Latest, copies: Codes
) -> list[tuple[Codes, Codes]]:
    """Return pairs of a place and a call that waited for it, for calls that block by their name."""
    names = record.names
    is_all, is_event, is_allocation = (
        np.array([pattern.match(name) is not None for name in names], np.bool_)
        for pattern in (_ALL, _EVENT, _ALLOCATION)
    )
    sync = np.zeros(record.host.start.size, np.bool_)
    sync[blocking_calls(record)] = True
    row = np.maximum(host.row, 0)
    name = record.host.name[row]
    asked = np.flatnonzero((host.row >= 0) & (sync[row] | is_all[name] | is_allocation[name]))
    asked = np.setdiff1d(asked, copies)
    start, stop = host.start[asked], host.stop[asked] + SOON
    event = is_event[name[asked]]
    best, newest = np.full(asked.size, -1, np.int64), np.full(asked.size, -1, np.int64)
    pairs: list[tuple[Codes, Codes]] = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    for stream in range(len(latest.lanes)):
        last = latest.find_launched(stream, start, stop)
        last = np.where(event, latest.on(stream, start, stop), last)
        good = (last >= 0) & (made.stop[last] <= stop)
        every = good & is_all[name[asked]]
        pairs.append((last[every], asked[every]))
        later = good & ((best < 0) | (made.stop[last] > made.stop[best]))
        best[later] = last[later]
        newer = good & ((newest < 0) | (made.called[last] > made.called[newest]))
        newest[newer] = last[newer]
    one = (best >= 0) & ~is_all[name[asked]]
    allocation = is_allocation[name[asked]]
    at_once = (made.stop[best] > start) & (host.stop[asked] - made.stop[best] < 2 * SOON)
    one &= ~allocation | at_once
    pairs.append((best[one], asked[one]))
    also = one & (newest != best) & ~allocation
    pairs.append((newest[also], asked[also]))
    return pairs


def _split_blocking_calls(
    record: Record, host: HostTasks, inputs: _Inputs, returned: Ns, marked: tuple[Codes, Codes, Flags]
) -> Syncs:
    """Split calls that both launch and block into two tasks: copies launch first, a full queue blocks first."""
    copies, full, blocks = marked
    twice = np.zeros(host.row.size, np.bool_)
    twice[copies] = host.kind[copies] == TaskKind.LAUNCH
    first_blocks = np.zeros(host.row.size, np.bool_)
    first_blocks[full] = True
    twice |= first_blocks
    at = np.repeat(np.arange(host.row.size), 1 + twice)
    second = np.zeros(at.size, np.bool_)
    second[1:] = at[1:] == at[:-1]
    made = host.take(at)
    launch_first, block_first = twice & ~first_blocks, twice & first_blocks
    blocking = np.where(twice[at], second != first_blocks[at], blocks[at])
    start = np.where(blocking, returned[at], made.start)
    start[block_first[at] & second] = returned[at[block_first[at] & second]]
    stop = made.stop.copy()
    stop[launch_first[at] & ~second] = made.start[launch_first[at] & ~second]
    stop[block_first[at] & ~second] = start[block_first[at] & ~second]
    kind = np.where(blocking, TaskKind.SYNC, made.kind)
    tasks = HostTasks(made.lane, made.row, made.thread, start, stop, kind, made.line)
    place = np.full(host.row.size, -1, np.int64)
    place[at[blocking]] = np.flatnonzero(blocking)
    launch = np.full(record.host.start.size, -1, np.int64)
    launches = np.flatnonzero((kind == TaskKind.LAUNCH) & (made.row >= 0))
    launch[made.row[launches]] = launches
    called = np.where(blocking, made.start, start)
    delay = np.minimum(0, host.stop[inputs.dst] - inputs.done)
    return Syncs(tasks, called, inputs.src, place[inputs.dst], delay, inputs.early, launch, block_first[at])
