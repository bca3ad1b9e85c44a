"""The partition of a rank's time: every nanosecond of its window is on exactly one line.

A rank with device events is accounted for by its device, a rank without by its training thread.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lostflops.account.ledger.gaps import Gaps, explain
from lostflops.account.ledger.host_traits import Trait
from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.record import COMM, KERNEL, Codes, Record
from lostflops.account.ledger.windows import LedgerWindow
from lostflops.store.intervals import Intervals


@dataclass(frozen=True, slots=True)
class Partition:
    """The time of a rank by line."""

    window: LedgerWindow
    lines: dict[str, Intervals]
    """Disjoint, and together the window."""
    compute: Intervals
    """All compute."""
    comm: Intervals
    """All communication, hidden or not."""
    gaps: Gaps | None = None

    def __post_init__(self) -> None:
        total = sum(span.total for span in self.lines.values())
        assert total == self.window.wall, f"lines hold {total} ns of a window of {self.window.wall} ns"

    def ns(self) -> dict[str, int]:
        return {line: self.lines[line].total for line in LINES}


def partition(record: Record, window: LedgerWindow) -> Partition:
    return _on_device(record, window) if record.on_device else _on_thread(record, window)


def _on_device(record: Record, window: LedgerWindow) -> Partition:
    return _within(window, *record.keep("device lines", lambda: _device_lines(record)))


def _device_lines(record: Record) -> tuple[dict[str, Intervals], Intervals, Intervals, Gaps]:
    """Return all time of a device by line, its compute, its communication and its idle gaps, before a window is cut."""
    device = record.device

    def running(rows: Codes) -> Intervals:
        return Intervals.of(device.start[rows], device.stop[rows])

    compute, comm = running(np.flatnonzero(device.kind == KERNEL)), running(np.flatnonzero(device.kind == COMM))
    busy = running(np.arange(device.start.size))
    first = min((int(device.start.min()), *record.steps.start.tolist()))
    last = max((int(device.stop.max()), *record.steps.stop.tolist()))
    gaps = explain(record, busy.gaps(first, last))
    lines = {
        "compute": compute,
        **_communication(record, compute),
        "copy": busy - (compute | comm),
        **gaps.lines,
    }
    return lines, compute, comm, gaps


def _on_thread(record: Record, window: LedgerWindow) -> Partition:
    """Partition the time of a CPU rank.

    Any op computes except those of communication; an op that only wraps others has no time of its own.
    """
    host, lanes = record.host, [record.training_lane]

    data, ops, compiling = (host.spans(trait, lanes) for trait in (Trait.DATA, Trait.OP, Trait.COMPILE))
    comm = Intervals.of(record.gloo.start, record.gloo.stop)
    compute = _computing(record, comm) - (host.spans(Trait.COMM, lanes) | compiling | data)
    lines = {"compute": compute, **_communication(record, compute)}
    rest = window.inside - (compute | comm)
    for line, span in (("idle.data", data), ("idle.compile", compiling), ("idle.host", ops)):
        lines[line] = rest & span
        rest -= span
    lines["idle.python"] = rest
    return _within(window, lines, compute, comm)


def _communication(record: Record, compute: Intervals) -> dict[str, Intervals]:
    """Return communication that nothing hides: moving data comes before waits, waits for all before waits for one."""
    calls, taken = record.communication, compute
    lines = {}
    for line, rows, start, stop in (
        ("comm.transfer", slice(None), calls.ready, calls.stop),
        ("comm.wait", ~calls.transfer, calls.start, calls.ready),
        ("comm.bubble", calls.transfer, calls.start, calls.ready),
    ):
        span = Intervals.of(start[rows], stop[rows])
        lines[line] = span - taken
        taken |= span
    return lines


def _computing(record: Record, comm: Intervals) -> Intervals:
    """Return when ops compute; a function of the program does so only while no communication runs: else it waits."""
    host = record.host
    rows = host.computing(record.training_lane)
    functions = (host.traits[rows] & Trait.FUNCTION) != 0
    ops, calls = (Intervals.of(host.start[own], host.stop[own]) for own in (rows[~functions], rows[functions]))
    return ops | (calls - comm)


def _within(
    window: LedgerWindow, lines: dict[str, Intervals], compute: Intervals, comm: Intervals, gaps: Gaps | None = None
) -> Partition:
    inside, empty = window.inside, Intervals.empty()
    return Partition(
        window,
        {line: lines.get(line, empty) & inside for line in LINES},
        compute & inside,
        comm & inside,
        gaps,
    )
