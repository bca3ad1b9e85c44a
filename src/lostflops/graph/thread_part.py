"""The part of a rank without a device: its training thread, which computes, and the threads that run its collectives.

The training thread is one lane of stretches that tile its time. A collective starts when the thread asks for it and its
worker is free; a wait has no time of its own, but ends with the collectives it is for. Edges of steps are marks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lostflops.graph.parts import Lane, Part, PartSteps
from lostflops.graph.tasks import NONE, Because, Edges, Kind, LaneKind, Tasks
from lostflops.graph.thread_calls import Calls, calls
from lostflops.graph.thread_host import Spans, Stretches, spans, stretches
from lostflops.graph.thread_waits import Thread, Wait, found_late, waits
from lostflops.ledger.host_traits import Trait
from lostflops.ledger.lines import LINES
from lostflops.ledger.modules import stretches as module_stretches
from lostflops.ledger.phases import OTHER, PHASES, thread_phases
from lostflops.ledger.record import Codes, Ns, Record
from lostflops.store.intervals import Intervals

if TYPE_CHECKING:
    from lostflops.ledger.windows import Window
    from lostflops.store.run import Run

_PYTHON, _STEP, _WAIT = "python", "step", "wait"
_SYNC_AT, _STOP_AT, _START_AT, _STRETCH_AT = range(4)
"""Order of what stands at the same instant: who waited goes on, a step ends, the next begins, then what is in it."""


def thread_part(run: Run, record: Record, edges: Window) -> Part:
    made, did = calls(run, record), spans(record)
    asked = np.where(made.asked >= 0, record.host.start[made.asked], made.start) if len(made) else made.start
    ops = record.host.start[record.host.having(Trait.OP | Trait.DATA, [record.training_lane])]
    thread = Thread(did.compute | did.data, np.sort(ops), edges.start, edges.stop)
    waited = waits(made, asked, thread)
    host = _host(record, did, edges, waited, np.concatenate((asked, made.start, made.stop)))
    return _part(record, edges, host, _Issued(made, asked, found_late(made, asked, thread, waited)))


@dataclass(frozen=True, slots=True)
class _Host:
    """The training thread's lane: `start` and `stop` as recorded, `place` the stretch of each task, NONE for marks and
    waits; `waits` are pairs of a task and the call it waits for."""

    start: Ns
    stop: Ns
    kind: Codes
    place: Codes
    tiles: Stretches
    first: Codes
    last: Codes
    waits: tuple[Codes, Codes]


@dataclass(frozen=True, slots=True)
class _Issued:
    calls: Calls
    asked: Ns
    late: Codes

    def lag(self) -> Ns:
        """From asking to starting, where a worker was free: what a call stood in the queue is left to the replay."""
        made, before = self.calls, self.calls.before()
        lag = made.start - self.asked
        free = (before == NONE) | made.transfer | (made.stop[before] <= self.asked)
        usual = int(np.median(lag[free])) if free.any() else 0
        return np.where(free, lag, np.minimum(lag, usual))


def _host(record: Record, did: Spans, edges: Window, waited: list[Wait], seen: Ns) -> _Host:
    first, last = int(seen.min(initial=edges.start[0])), int(seen.max(initial=edges.stop[-1]))
    opens, closes = (np.array(times, np.int64) for times in ([w.start for w in waited], [w.stop for w in waited]))
    real = closes > opens
    cuts = np.concatenate((edges.start, edges.stop, opens[real], closes[real]))
    tiles = stretches(record, did, first, last, cuts)
    kept = np.flatnonzero(Intervals.of(opens[real], closes[real]).within(tiles.start, tiles.start + 1) == 0)
    # What is due while an op runs is due when that has ended.
    ends = np.append(tiles.start[kept], last)
    due = np.where(real, closes, ends[np.minimum(np.searchsorted(ends, closes), ends.size - 1)])
    steps = edges.start.size
    times = np.concatenate((due, edges.stop, edges.start, tiles.start[kept]))
    sizes = (len(waited), steps, steps, kept.size)
    sort = np.repeat([_SYNC_AT, _STOP_AT, _START_AT, _STRETCH_AT], sizes)
    order = np.lexsort((sort, times))
    at = np.empty(order.size, np.int64)
    at[order] = np.arange(order.size)
    place = np.concatenate((np.full(order.size - kept.size, NONE), kept))[order]
    kind = np.where(sort == _SYNC_AT, Kind.SYNC, Kind.MARK)[order]
    timed = place >= 0
    kind[timed], stop = tiles.kind[place[timed]], times[order]
    stop[timed] = tiles.stop[place[timed]]
    held = np.repeat(at[: len(waited)], [len(wait.calls) for wait in waited])
    awaited = np.array([call for wait in waited for call in wait.calls], np.int64)
    begun = at[len(waited) + steps : len(waited) + 2 * steps]
    return _Host(times[order], stop, kind, place, tiles, begun, at[len(waited) : len(waited) + steps], (held, awaited))


def _part(record: Record, edges: Window, host: _Host, issued: _Issued) -> Part:
    made, count = issued.calls, host.start.size
    order = np.lexsort((np.arange(len(made)), made.lane))
    row = np.empty(order.size, np.int64)
    row[order] = np.arange(count, count + order.size)
    lanes = (
        Lane(LaneKind.HOST, "training thread", int(host.start[0])),
        *(Lane(LaneKind.COMM_THREAD, name, None) for name in made.lanes),
    )
    tasks, words = _tasks(record, edges, host, issued, order)
    return Part(
        record.rank,
        lanes,
        tasks,
        _edges(host, issued, row),
        PartSteps(
            np.array(edges.number, np.int64),
            host.first,
            host.last,
            np.zeros(host.first.size, np.bool_),
            edges.stop - edges.start,
        ),
        np.concatenate((host.start, made.start[order])),
        np.concatenate((host.stop, made.stop[order])),
        words,
        late=row[issued.late],
    )


def _edges(host: _Host, issued: _Issued, row: Codes) -> Edges:
    """From asking to each call, and from each call to what waits for it."""
    made, asked = issued.calls, issued.asked
    source = np.maximum(np.searchsorted(host.start, asked, "right") - 1, 0)
    within = host.stop[source] > asked
    since = np.where(within, host.start[source], host.stop[source])
    held, awaited = host.waits
    ns = np.concatenate((np.maximum(asked - since, 0) + issued.lag(), np.zeros(held.size, np.int64)))
    return Edges(
        np.concatenate((source, row[awaited])).astype(np.int32),
        np.concatenate((row, held)).astype(np.int32),
        ns,
        np.concatenate((within, np.zeros(held.size, np.bool_))),
        np.repeat([Because.THREAD, Because.SYNC], [len(made), held.size]).astype(np.int8),
    )


def _tasks(record: Record, edges: Window, host: _Host, issued: _Issued, order: Codes) -> tuple[Tasks, tuple[str, ...]]:
    made, count = issued.calls, host.start.size
    timed = host.place >= 0
    place, total = host.place[timed], count + order.size
    times = np.concatenate((host.start, issued.asked[order]))
    ops = tuple(dict.fromkeys(made.op.tolist()))
    words = (*record.names, *record.modules, _PYTHON, _STEP, _WAIT, *ops)
    named = len(record.names) + len(record.modules)

    def column(stretch: Codes, other: int) -> Codes:
        """One for each task: of stretches as given, and another for all that is none."""
        found = np.full(total, other, np.int64)
        found[:count][timed] = stretch
        return found

    row = column(host.tiles.row[place], NONE)
    name = np.where(row >= 0, record.host.name[row] if record.host.name.size else NONE, named)
    name[:count][host.kind == Kind.MARK] = named + 1
    name[:count][host.kind == Kind.SYNC] = named + 2
    name[count:] = [named + 3 + ops.index(op) for op in made.op[order].tolist()]
    event = np.where(row >= 0, record.host.event[row] if record.host.event.size else NONE, NONE)
    event[count:] = made.event[order]
    line = column(host.tiles.line[place], LINES.index("comm.wait"))
    line[:count][host.kind == Kind.MARK] = LINES.index("idle.python")
    line[count:] = LINES.index("comm.transfer")
    tasks = Tasks(
        np.concatenate((np.zeros(count, np.int64), made.lane[order] + 1)).astype(np.int32),
        np.concatenate((host.kind, np.full(order.size, Kind.COMM))).astype(np.int8),
        line.astype(np.int8),
        column(host.tiles.stop[place] - host.tiles.start[place], 0),
        np.zeros(total, np.int64),
        np.full(total, NONE, np.int32),
        _steps(edges, times).astype(np.int32),
        _phases(record, times).astype(np.int8),
        column(host.tiles.kernel_class[place], NONE).astype(np.int8),
        name.astype(np.int32),
        _layers(record, times).astype(np.int32),
        event,
    )
    return tasks, words


def _steps(edges: Window, times: Ns) -> Codes:
    at = np.searchsorted(edges.start, times, "right") - 1
    inside = (at >= 0) & (times < edges.stop[at])
    return np.where(inside, np.array(edges.number, np.int64)[at], NONE)


def _phases(record: Record, times: Ns) -> Codes:
    until, names = thread_phases(record)
    codes = np.array([*(PHASES.index(name) for name in names), OTHER], np.int64)
    found: Codes = codes[np.searchsorted(until, times, "right")]
    return found


def _layers(record: Record, times: Ns) -> Codes:
    """Index into the words, which hold modules after names."""
    if not any(record.modules):
        return np.full(times.size, NONE, np.int64)
    edges, codes = module_stretches(record)
    found = codes[np.clip(np.searchsorted(edges, times, "right") - 1, 0, codes.size - 1)]
    known = np.array([*(bool(module) for module in record.modules), False])[found]
    return np.where(known, found + len(record.names), NONE)
