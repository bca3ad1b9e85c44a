"""Forward, backward, optimizer, data: which phase of training an instant belongs to.

A device event has the phase of its launch, and an idle gap that of the event that ends it; waiting for a batch is data.
Work inside a backward node is backward; inside `Optimizer.step` or `zero_grad` optimizer; inside the loader's
`__next__` data. What comes before a backward pass, with no optimizer's step between, is forward. Everything else is
other: gradient clipping, metrics, inference.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from lostflops.ledger.host_traits import PYTHON_AROUND_OPS, Trait
from lostflops.ledger.nesting import Nest
from lostflops.ledger.record import Codes, Flags, Ns, Record, distinct
from lostflops.store.intervals import Intervals

PHASES: Final = ("forward", "backward", "optimizer", "data", "other")
FORWARD, BACKWARD, OPTIMIZER, DATA, OTHER = range(5)
_STEP: Final = "ProfilerStep#"


def phases_at(record: Record, times: Ns, lanes: Codes) -> Codes:
    """Phase of what a thread did at each time; a lane of -1 stands for an unknown thread."""
    host, known = record.host, lanes >= 0
    backward = np.zeros(times.size, np.bool_)
    for lane in distinct(lanes[known]):
        own = lanes == lane
        nodes = _spans(record, host.having(Trait.BACKWARD, [lane])) - _spans(record, host.having(Trait.COMPILE, [lane]))
        backward[own] = _inside(nodes, times[own])
    updating = known & _inside(_spans(record, host.having(Trait.OPTIMIZER)), times)
    found = np.full(times.size, OTHER, np.int64)
    found[known & _before_backward(times, backward, updating)] = FORWARD
    found[backward] = BACKWARD
    found[updating | (known & _inside(_spans(record, host.having(Trait.ZERO_GRAD)), times))] = OPTIMIZER
    found[known & _inside(_spans(record, host.having(Trait.DATA, record.loading_lanes)), times)] = DATA
    return found


def _before_backward(times: Ns, backward: Flags, updating: Flags) -> Flags:
    """Whether of a backward pass and an optimizer's step the next to come is the backward pass."""
    marks = np.flatnonzero(backward | updating)
    marks = marks[np.argsort(times[marks], kind="stable")]
    if not marks.size:
        return np.zeros(times.size, np.bool_)
    following = np.searchsorted(times[marks], times)
    return backward[marks[np.minimum(following, marks.size - 1)]] & (following < marks.size)


def thread_phases(record: Record) -> tuple[Ns, Codes]:
    """When the phase of the training thread changes, and to which: what a CPU rank did is told by its ops."""
    lane = record.training_lane
    rows = record.host.having(Trait.OP | PYTHON_AROUND_OPS, [lane])
    times = np.unique(record.host.start[rows])
    return times, phases_at(record, times, np.full(times.size, lane, np.int64))


def thread_annotations(record: Record) -> tuple[Ns, list[str]]:
    """When the innermost annotation of the training thread changes, and to which."""
    host = record.host
    rows = host.having(Trait.ANNOTATION, [record.training_lane])
    named = np.array([not record.names[code].startswith(_STEP) for code in host.name[rows].tolist()], np.bool_)
    rows = rows[named]
    times = np.unique(np.concatenate((host.start[rows], host.stop[rows])))
    inner = Nest(host.start[rows], host.stop[rows]).innermost(times)
    return times, [record.names[host.name[rows[i]]] if i >= 0 else "" for i in inner.tolist()]


def _spans(record: Record, rows: Codes) -> Intervals:
    return Intervals.of(record.host.start[rows], record.host.stop[rows])


def _inside(spans: Intervals, times: Ns) -> Flags:
    return spans.within(times, times + 1) > 0
