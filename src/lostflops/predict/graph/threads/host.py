"""The training thread of a rank without a device, as stretches with a single activity each.

Activities are ops that compute, loading, compiling, other ops, and Python between them. Stretches cover the thread's
time without gaps, except for waits, which have no time of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from lostflops.account.facts.kernel_classes import CLASSES, op_class
from lostflops.account.ledger.host_traits import Trait
from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.nesting import Nest
from lostflops.account.ledger.record import Codes, Flags, Ns, Record
from lostflops.predict.graph.tasks import NONE, TaskKind
from lostflops.store.intervals import Intervals

COMPUTE, DATA, COMPILE, HOST, PYTHON = range(5)
_LINE: Final = np.array(
    [LINES.index(line) for line in ("compute", "idle.data", "idle.compile", "idle.host", "idle.python")]
)
_KIND: Final = np.array([TaskKind.KERNEL, TaskKind.DATA, TaskKind.HOST, TaskKind.HOST, TaskKind.HOST])


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretches:
    """Stretches of the training thread, each with a single activity."""

    start: Ns
    stop: Ns
    kind: Codes
    line: Codes
    row: Codes
    """Host row of the outermost event that a stretch is a part of, NONE for Python."""
    kernel_class: Codes


@dataclass(frozen=True, slots=True)
class HostSpans:
    """When the training thread did what, one set of intervals for each activity."""

    compute: Intervals
    data: Intervals
    compiling: Intervals
    ops: Intervals


def spans(record: Record) -> HostSpans:
    """Return the activities of the training thread, separated as in the ledger."""
    host, lanes = record.host, [record.training_lane]
    data, ops, compiling, comm = (
        host.spans(trait, lanes) for trait in (Trait.DATA, Trait.OP, Trait.COMPILE, Trait.COMM)
    )
    return HostSpans(computing(record) - (comm | compiling | data), data, compiling, ops)


def computing(record: Record) -> Intervals:
    """Return when ops compute. A function of the program computes only while no communication runs: otherwise it waits
    for it."""
    host, comm = record.host, Intervals.of(record.gloo.start, record.gloo.stop)
    rows = host.computing(record.training_lane)
    functions = (host.traits[rows] & Trait.FUNCTION) != 0
    ops, calls = (Intervals.of(host.start[own], host.stop[own]) for own in (rows[~functions], rows[functions]))
    return ops | (calls - comm)


def stretches(record: Record, did: HostSpans, first: int, last: int, cuts: Ns) -> Stretches:
    """Return the stretches from `first` to `last`, also cut at the times in `cuts`."""
    host = record.host
    rows = _outermost(record, did)
    edges = (host.start[rows], host.stop[rows], cuts)
    sets = (did.compute, did.data, did.compiling, did.ops)
    points = np.concatenate((*edges, *(edge for own in sets for edge in (own.start, own.stop)), [first, last]))
    points = np.unique(points[(points >= first) & (points <= last)])
    start, stop = points[:-1], points[1:]
    sort = np.select([_inside(own, start) for own in sets], [COMPUTE, DATA, COMPILE, HOST], PYTHON)
    around = Nest(host.start[rows], host.stop[rows]).innermost(start)
    row = np.where(around >= 0, rows[around], NONE) if rows.size else np.full(start.size, NONE, np.int64)
    row[sort == PYTHON] = NONE
    kept = _find_stretch_starts(sort, row, np.isin(start, cuts))
    classes = np.array([CLASSES.index(op_class(name)) for name in record.names], np.int64)
    start, stop, sort, row = start[kept], np.append(start[kept][1:], last), sort[kept], row[kept]
    kernel_class = np.where(sort == COMPUTE, classes[host.name[row]], NONE)
    return Stretches(start=start, stop=stop, kind=_KIND[sort], line=_LINE[sort], row=row, kernel_class=kernel_class)


def _outermost(record: Record, did: HostSpans) -> Codes:
    """Return the events that name the time in them: the outermost of ops that compute, ops that ask for communication,
    and calls of the loader."""
    host, lanes = record.host, [record.training_lane]
    ops = host.computing(record.training_lane)
    reach = np.maximum.accumulate(host.stop[ops]) if ops.size else ops
    outer = ops[np.concatenate(([True], host.stop[ops][1:] > reach[:-1]))] if ops.size else ops
    outer = outer[~_inside(did.data, host.start[outer])]
    return np.concatenate((outer, host.having(Trait.COMM, lanes), host.having(Trait.DATA, lanes)))


def _find_stretch_starts(sort: Codes, row: Codes, cut: Flags) -> Codes:
    """Return where stretches begin that differ from the one before, or are cut from it."""
    other = np.concatenate(([True], (sort[1:] != sort[:-1]) | (row[1:] != row[:-1])))
    return np.flatnonzero(other | cut)


def _inside(span: Intervals, times: Ns) -> Flags:
    found: Flags = span.within(times, times + 1) > 0
    return found
