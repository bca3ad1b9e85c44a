"""The phase of training that an instant belongs to: forward, backward, optimizer, data or other.

A device event has the phase of its launch, and an idle gap that of the event that ends it; waiting for a batch is data.
Work inside a backward node is backward; inside `Optimizer.step` or `zero_grad` optimizer; inside the loader's
`__next__` data. Work before a backward pass, with no optimizer's step between, is forward. Everything else is other:
gradient clipping, metrics, inference.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import numpy as np

from lostflops.account.ledger.host_traits import PYTHON_AROUND_OPS, Trait
from lostflops.account.ledger.nesting import Nest
from lostflops.account.ledger.record import Codes, Flags, Ns, Record
from lostflops.store.intervals import Intervals
from lostflops.store.row_groups import group_rows

PHASES: Final = ("forward", "backward", "optimizer", "data", "other")
FORWARD, BACKWARD, OPTIMIZER, DATA, OTHER = range(5)
_STEP: Final = "ProfilerStep#"


def phases_at(record: Record, times: Ns, lanes: Codes) -> Codes:
    """Return the phase of what a thread did at each time; a lane of -1 means an unknown thread."""
    host, known = record.host, lanes >= 0
    backward, loading = np.zeros(times.size, np.bool_), np.zeros(times.size, np.bool_)
    for lane, own in group_rows(lanes):
        if lane < 0:
            continue
        nodes = host.spans(Trait.BACKWARD, [lane]) - host.spans(Trait.COMPILE, [lane])
        backward[own] = _inside(nodes, times[own])
        loading[own] = _inside(host.spans(Trait.DATA, [lane]), times[own])
    updating = known & _inside(host.spans(Trait.OPTIMIZER), times)
    found = np.full(times.size, OTHER, np.int64)
    found[known & _before_backward(record, times, backward, updating)] = FORWARD
    found[backward] = BACKWARD
    found[updating | (known & _inside(host.spans(Trait.ZERO_GRAD), times))] = OPTIMIZER
    found[loading] = DATA
    return found


def _before_backward(record: Record, times: Ns, backward: Flags, updating: Flags) -> Flags:
    """Return whether a backward pass of the same step comes next, before any optimizer's step."""
    marks = np.flatnonzero(backward | updating)
    marks = marks[np.argsort(times[marks], kind="stable")]
    if not marks.size:
        return np.zeros(times.size, np.bool_)
    following = np.searchsorted(times[marks], times)
    coming = marks[np.minimum(following, marks.size - 1)]
    step = np.searchsorted(record.steps.start, times, side="right")
    same: Flags = step[coming] == step
    return backward[coming] & same & (following < marks.size)


def thread_phases(record: Record) -> tuple[Ns, list[str]]:
    """Return until when each phase of the training thread lasts, on a CPU rank.

    Phases are those of its ops, and time between two ops belongs to the second.
    """
    lane = record.training_lane
    rows = record.host.having(Trait.OP | PYTHON_AROUND_OPS, [lane])
    outer = Intervals.of(record.host.start[rows], record.host.stop[rows])
    codes = phases_at(record, outer.start, np.full(outer.start.size, lane, np.int64))
    return outer.stop, [PHASES[code] for code in codes.tolist()]


def annotations_on(record: Record, lane: int) -> tuple[Ns, list[str]]:
    """Return until when each innermost annotation of a thread lasts, and its name; steps are not annotations."""
    host = record.host
    rows = host.having(Trait.ANNOTATION, [lane])
    named = np.array([not record.names[code].startswith(_STEP) for code in host.name[rows].tolist()], np.bool_)
    rows = rows[named]
    times = np.unique(np.concatenate((host.start[rows], host.stop[rows])))
    inner = Nest(host.start[rows], host.stop[rows]).innermost(times)
    names = [record.names[host.name[rows[i]]] if i >= 0 else "" for i in inner.tolist()]
    return times, ["", *names[:-1]]


def by_stretch(span: Intervals, until: Ns, names: list[str], after: str) -> Counter[str]:
    """Sum the time of a set by the name that lasts until each time, and by `after` from the last on."""
    sums: Counter[str] = Counter()
    if not len(span):
        return sums
    first, last = span.start[:1], span.stop[-1:]
    edges = np.concatenate((np.minimum(first, until[:1]), until, np.maximum(last, until[-1:]))) if until.size else None
    if edges is None:
        return Counter({after: span.total})
    for name, ns in zip((*names, after), span.within(edges[:-1], edges[1:]).tolist(), strict=True):
        sums[name] += ns
    return sums


def _inside(spans: Intervals, times: Ns) -> Flags:
    return spans.within(times, times + 1) > 0
