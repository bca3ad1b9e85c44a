"""Host activity of a rank, as tasks of lanes: runtime calls, ops that call no other, and the time between them.

The training thread and the autograd thread take turns, so they are one lane. A thread that launches work at the same
time has its own lane.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lostflops.account.ledger.host_traits import Trait
from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.nesting import Nest
from lostflops.account.ledger.record import Codes, Flags, Ns, Record, distinct
from lostflops.predict.graph.tasks import TaskKind
from lostflops.store.intervals import Intervals

LONG: Final = 20_000
"""A longer time between two tasks, in ns, is a task of its own."""
_TURNS: Final = 0.1
"""Threads take turns if at most this part of one thread's time overlaps with the other's."""
PYTHON: Final = "python"


@dataclass(frozen=True, slots=True)
class HostTasks:
    """Tasks of a rank's host, in the order of lanes."""

    lane: Codes
    row: Codes
    """Row in the host's record, -1 for a task that was not recorded."""
    thread: Codes
    """Lane in the record."""
    start: Ns
    stop: Ns
    kind: Codes
    line: Codes

    def take(self, rows: npt.NDArray[Any]) -> HostTasks:
        return HostTasks(*(getattr(self, field.name)[rows] for field in fields(self)))


def host_tasks(record: Record) -> tuple[HostTasks, Codes]:
    """Return the tasks, and for each host row the row of the call it is part of: itself, or one around it."""
    host = record.host
    rows, owner = _leaves(record)
    order = np.argsort(host.start[rows], kind="stable")
    rows = rows[order]
    lanes = _lanes(record, rows)
    order = np.lexsort((host.stop[rows], host.start[rows], lanes))
    rows, lanes = rows[order], lanes[order]
    launches = np.zeros(host.start.size, np.bool_)
    launches[owner[record.device.launch[record.device.launch >= 0]]] = True
    kind = np.where(launches[rows], TaskKind.LAUNCH, TaskKind.HOST)
    kind[(host.traits[rows] & Trait.DATA) != 0] = TaskKind.DATA
    made = HostTasks(lanes, rows, host.lane[rows], host.start[rows], host.stop[rows], kind, _line(record, rows))
    return _with_gaps(record, made), owner


def _leaves(record: Record) -> tuple[Codes, Codes]:
    host, device = record.host, record.device
    launching = np.flatnonzero(np.bincount(device.launch[device.launch >= 0]))
    threads = sorted({*distinct(host.lane[launching]), record.training_lane} - {-1})
    owner = np.arange(host.start.size)
    found = []
    data = _waits_for_data(record, launching)
    for thread in threads:
        own = np.flatnonzero((host.lane == thread) & (((host.traits & (Trait.OP | Trait.RUNTIME)) != 0) | data))
        own = own[np.lexsort((-host.stop[own], host.start[own]))]
        whole = ((host.traits[own] & Trait.RUNTIME) != 0) | data[own]
        inside, around = _find_enclosing_spans(host.start[own], host.stop[own], whole)
        owner[own[inside]] = own[around[inside]]
        own = own[~inside]
        whole = whole[~inside]
        follows = np.zeros(own.size, np.bool_)
        follows[:-1] = host.start[own[1:]] < host.stop[own[:-1]]
        found.append(own[whole | ~follows])
    return np.concatenate(found), owner


def _waits_for_data(record: Record, launching: Codes) -> Flags:
    """Return which rows wait for a batch while nothing is launched: each is one task, whatever ops the loader runs."""
    host = record.host
    data: Flags = (host.traits & Trait.DATA) != 0
    for row in np.flatnonzero(data).tolist():
        calls = launching[host.lane[launching] == host.lane[row]]
        data[row] = not bool(((host.start[calls] >= host.start[row]) & (host.stop[calls] <= host.stop[row])).any())
    return data


def _find_enclosing_spans(start: Ns, stop: Ns, whole: Flags) -> tuple[Flags, Codes]:
    """Return which spans are inside a `whole` span, and inside which one. Spans are in order of start, an outer one
    first."""
    if not start.size:
        return np.zeros(0, np.bool_), np.empty(0, np.int64)
    ends = np.where(whole, stop, np.iinfo(np.int64).min)
    new = np.zeros(start.size, np.bool_)
    new[1:] = ends[1:] > np.maximum.accumulate(ends)[:-1]
    new[:1] = whole[:1]
    around = np.maximum.accumulate(np.where(new, np.arange(start.size), -1))
    behind = np.concatenate(([-1], around[:-1]))
    inside = (behind >= 0) & (start < ends[behind]) & (stop <= ends[behind])
    return inside, behind


def _lanes(record: Record, rows: Codes) -> Codes:
    """Return the lane of each row: 0 for the training thread and those that take turns with it, then one for each other
    thread."""
    host, lanes = record.host, np.zeros(rows.size, np.int64)
    threads = [thread for thread in distinct(host.lane[rows]) if thread != record.training_lane]
    own = host.lane[rows] == record.training_lane
    busy = Intervals.of(host.start[rows[own]], host.stop[rows[own]])
    alone = 0
    for thread in threads:
        own = host.lane[rows] == thread
        span = Intervals.of(host.start[rows[own]], host.stop[rows[own]])
        if (busy & span).total > _TURNS * max(span.total, 1):
            alone += 1
            lanes[own] = alone
        else:
            busy |= span
    return lanes


def _line(record: Record, rows: Codes) -> Codes:
    traits = record.host.traits[rows]
    line = np.full(rows.size, LINES.index("idle.host"))
    for trait, name in ((Trait.COMPILE, "compile"), (Trait.ALLOC, "alloc"), (Trait.SYNC, "sync"), (Trait.DATA, "data")):
        line[(traits & trait) != 0] = LINES.index(f"idle.{name}")
    return line


def _with_gaps(record: Record, made: HostTasks) -> HostTasks:
    """Return the tasks with long times between them as tasks of their own."""
    same = made.lane[1:] == made.lane[:-1]
    at = np.flatnonzero(same & (made.start[1:] - made.stop[:-1] > LONG))
    start, stop = made.stop[at], made.start[at + 1]
    host, threads = record.host, distinct(made.thread)
    middle = start + (stop - start) // 2
    line = np.full(at.size, LINES.index("idle.python"))
    kind = np.full(at.size, TaskKind.HOST)
    for trait, name in ((Trait.OP, "host"), (Trait.COMPILE, "compile"), (Trait.DATA, "data")):
        inside = host.spans(trait, threads).within(middle, middle + 1) > 0
        line[inside] = LINES.index(f"idle.{name}")
    kind[line == LINES.index("idle.data")] = TaskKind.DATA
    none = np.full(at.size, -1, np.int64)
    columns = (made.lane[at], none, made.thread[at + 1], start, stop, kind, line)
    order = np.argsort(np.concatenate((np.arange(made.row.size) * 2, at * 2 + 1)), kind="stable")
    return HostTasks(
        *(
            np.concatenate((getattr(made, field.name), more))[order]
            for field, more in zip(fields(HostTasks), columns, strict=True)
        )
    )


def names_between(record: Record, made: HostTasks) -> Codes:
    """Return the name of each task: of its own row, or of the innermost op around the middle of a task that was not
    recorded; -1 for Python."""
    host = record.host
    name = np.where(made.row >= 0, host.name[made.row], -1)
    unnamed = np.flatnonzero(made.row < 0)
    middle = made.start[unnamed] + (made.stop[unnamed] - made.start[unnamed]) // 2
    for thread in distinct(made.thread[unnamed]):
        own = made.thread[unnamed] == thread
        ops = host.having(Trait.OP, [thread])
        around = Nest(host.start[ops], host.stop[ops]).innermost(middle[own])
        name[unnamed[own]] = np.where(around >= 0, host.name[ops[around]], -1) if ops.size else -1
    return name
