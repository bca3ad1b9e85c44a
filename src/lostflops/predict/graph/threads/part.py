"""Graph part of a rank without a device: its training thread, which computes, and the threads that run collectives.

The training thread is one lane of stretches that cover its time. A collective starts when the thread asks for it and
its worker is free; a wait has no time of its own, but ends with the collectives it is for. Edges of steps are marks.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.ledger.host_traits import Trait
from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.modules import stretches as module_stretches
from lostflops.account.ledger.phases import OTHER, PHASES, thread_phases
from lostflops.account.ledger.record import Codes, Ns, Record
from lostflops.predict.graph.parts import GraphPart, PartSteps, TaskLane
from lostflops.predict.graph.tasks import NONE, Because, Edges, LaneKind, TaskKind, Tasks
from lostflops.predict.graph.threads.calls import HostCalls, calls
from lostflops.predict.graph.threads.host import spans
from lostflops.predict.graph.threads.lane import HostLane, host_lane
from lostflops.predict.graph.threads.loader import AHEAD, Batches, batches
from lostflops.predict.graph.threads.waits import Thread, as_noticed, found_late, waits

if TYPE_CHECKING:
    from lostflops.account.ledger.windows import LedgerWindow
    from lostflops.store.run import Run

_PYTHON, _STEP, _WAIT, _LOAD = "python", "step", "wait", "load"
_LINES: Final = ("idle.python", "comm.wait", "comm.transfer", "idle.data")
"""Ledger lines of marks, waits, calls and batches."""


def thread_part(run: Run, record: Record, edges: LedgerWindow) -> GraphPart:
    did = spans(record)
    thread = Thread(did.compute | did.data, *_list_op_starts(record), edges.start, edges.stop)
    made = as_noticed(calls(run, record), thread)
    asked, handed = (
        np.where(made.asked >= 0, times[made.asked], made.start) if len(made) else made.start
        for times in (record.host.start, record.host.stop)
    )
    noticed = replace(made, stop=np.where(made.transfer, made.noticed, made.stop))
    waited = waits(noticed, handed, thread)
    seen = np.concatenate((asked, made.start, noticed.stop, edges.start, edges.stop))
    loaded = batches(record, int(seen.min()))
    host = host_lane(record, did, edges, (waited, loaded), (int(seen.min()), int(seen.max())))
    return _part(record, edges, host, _Beside(made, asked, found_late(noticed, handed, thread, waited), loaded))


def _list_op_starts(record: Record) -> tuple[Ns, Ns]:
    """Return when ops and annotations of the training thread began: all of them, and those that are not
    communication."""
    host = record.host
    rows = host.having(Trait.OP | Trait.ANNOTATION, [record.training_lane])
    others = rows[(host.traits[rows] & Trait.COMM) == 0]
    return np.sort(host.start[rows]), np.sort(host.start[others])


@dataclass(frozen=True, slots=True)
class _Beside:
    """Calls and batches that ran beside the training thread."""

    calls: HostCalls
    asked: Ns
    """When each call was asked for."""
    late: Codes
    """Calls that were found done late."""
    batches: Batches

    @property
    def order(self) -> Codes:
        """Calls in the order of their lanes."""
        return np.lexsort((np.arange(len(self.calls)), self.calls.lane))

    def lag(self) -> Ns:
        """Return the time from asking to starting if a worker was free, in ns: the replay computes how long a call is
        queued."""
        made, before = self.calls, self.calls.before()
        lag = made.start - self.asked
        free = (before == NONE) | made.transfer | (made.stop[before] <= self.asked)
        usual = int(np.median(lag[free])) if free.any() else 0
        return np.where(free, lag, np.minimum(lag, usual))


def _part(record: Record, edges: LedgerWindow, host: HostLane, beside: _Beside) -> GraphPart:
    made, loaded, order, count = beside.calls, beside.batches, beside.order, host.start.size
    row = np.empty(order.size, np.int64)
    row[order] = np.arange(count, count + order.size)
    loader = [TaskLane(LaneKind.LOADER, "loader", int(start)) for start in loaded.start[:1]]
    lanes = (
        TaskLane(LaneKind.HOST, "training thread", int(host.start[0])),
        *(TaskLane(LaneKind.COMM_THREAD, name, None) for name in made.lanes),
        *loader,
    )
    tasks, words = _tasks(record, edges, host, beside)
    joined = np.zeros(host.first.size, np.bool_)
    return GraphPart(
        record.rank,
        lanes,
        tasks,
        _edges(host, beside, row),
        PartSteps(np.array(edges.number, np.int64), host.first, host.last, joined, edges.stop - edges.start),
        np.concatenate((host.start, made.start[order], loaded.start)),
        np.concatenate((host.stop, made.stop[order], loaded.stop)),
        words,
        late=row[beside.late],
    )


def _edges(host: HostLane, beside: _Beside, row: Codes) -> Edges:
    """Return edges from the op that asks to each call, from each call to what waits for it, from each batch to the task
    that takes it, and from that task to the batch that there is room for then."""
    asked, loaded = beside.asked, beside.batches
    source = host.at(asked)
    within = host.stop[source] > asked
    since = np.where(within, host.start[source], host.stop[source])
    held, awaited = host.waits
    taking = host.at(loaded.taken)
    load = np.arange(len(loaded)) + host.start.size + row.size
    issued = Edges(
        source.astype(np.int32),
        row.astype(np.int32),
        np.maximum(asked - since, 0) + beside.lag(),
        within,
        np.full(row.size, Because.THREAD, np.int8),
    )
    edges = (
        issued,
        _make_finish_edges(row[awaited], held, Because.SYNC),
        _make_finish_edges(load, taking, Because.THREAD),
        _make_finish_edges(taking[:-AHEAD], load[AHEAD:], Because.THREAD),
    )
    return Edges(*(np.concatenate([getattr(part, field.name) for part in edges]) for field in fields(Edges)))


def _make_finish_edges(src: Codes, dst: Codes, because: Because) -> Edges:
    """Return edges by which `src` is done before `dst` starts."""
    kind, never = np.full(src.size, because, np.int8), np.zeros(src.size, np.bool_)
    return Edges(src.astype(np.int32), dst.astype(np.int32), np.zeros(src.size, np.int64), never, kind)


def _tasks(record: Record, edges: LedgerWindow, host: HostLane, beside: _Beside) -> tuple[Tasks, tuple[str, ...]]:
    """Return the tasks of the training thread, then calls in the order of their lanes, then batches; and the words."""
    made, loaded, order = beside.calls, beside.batches, beside.order
    timed, sizes = host.place >= 0, (host.start.size, order.size, len(loaded))
    place, call, load = host.place[timed], slice(sizes[0], sizes[0] + sizes[1]), slice(sum(sizes[:2]), sum(sizes))
    times = np.concatenate((host.start, beside.asked[order], loaded.start))
    ops = tuple(dict.fromkeys(made.op.tolist()))
    words = (*record.names, *record.modules, _PYTHON, _STEP, _WAIT, _LOAD, *ops)
    named = len(record.names) + len(record.modules)

    def column(stretch: Codes, *others: Codes | int) -> Codes:
        """Return one value for each task, given those of stretches, marks, waits, calls and batches."""
        found = np.zeros(sum(sizes), np.int64)
        found[: sizes[0]][timed] = stretch
        found[: sizes[0]][host.kind == TaskKind.MARK], found[: sizes[0]][host.kind == TaskKind.SYNC] = others[:2]
        found[call], found[load] = others[2:]
        return found

    row = host.tiles.row[place]
    op = np.array([named + 4 + ops.index(text) for text in made.op[order].tolist()], np.int64)
    idle, waiting, moving, loading = (LINES.index(line) for line in _LINES)
    lane = np.concatenate((np.zeros(sizes[0]), made.lane[order] + 1, np.full(sizes[2], len(made.lanes) + 1)))
    tasks = Tasks(
        lane.astype(np.int32),
        column(host.tiles.kind[place], TaskKind.MARK, TaskKind.SYNC, TaskKind.COMM, TaskKind.LOAD).astype(np.int8),
        column(host.tiles.line[place], idle, waiting, moving, loading).astype(np.int8),
        column(host.tiles.stop[place] - host.tiles.start[place], 0, 0, 0, loaded.stop - loaded.start),
        np.zeros(sum(sizes), np.int64),
        np.full(sum(sizes), NONE, np.int32),
        _steps(edges, times).astype(np.int32),
        _phases(record, times).astype(np.int8),
        column(host.tiles.kernel_class[place], NONE, NONE, NONE, NONE).astype(np.int8),
        column(_of(record.host.name, row, named), named + 1, named + 2, op, named + 3).astype(np.int32),
        _layers(record, times).astype(np.int32),
        column(_of(record.host.event, row, NONE), NONE, NONE, made.event[order], NONE),
    )
    return tasks, words


def _of(column: Codes, row: Codes, other: int) -> Codes:
    """Return the value of each row, and `other` for a negative row."""
    return np.where(row >= 0, column[row], other) if column.size else np.full(row.size, other, np.int64)


def _steps(edges: LedgerWindow, times: Ns) -> Codes:
    at = np.searchsorted(edges.start, times, "right") - 1
    inside = (at >= 0) & (times < edges.stop[at])
    return np.where(inside, np.array(edges.number, np.int64)[at], NONE)


def _phases(record: Record, times: Ns) -> Codes:
    until, names = thread_phases(record)
    codes = np.array([*(PHASES.index(name) for name in names), OTHER], np.int64)
    found: Codes = codes[np.searchsorted(until, times, "right")]
    return found


def _layers(record: Record, times: Ns) -> Codes:
    """Return indices into the words, which hold modules after names; NONE without a module."""
    if not any(record.modules):
        return np.full(times.size, NONE, np.int64)
    edges, codes = module_stretches(record)
    found = codes[np.clip(np.searchsorted(edges, times, "right") - 1, 0, codes.size - 1)]
    known = np.array([*(bool(module) for module in record.modules), False])[found]
    return np.where(known, found + len(record.names), NONE)
