"""The time of a rank that is accounted for: whole training steps, or all that was recorded.

On a device, step k runs from the first event launched in it to the first launched in step k + 1; the last ends with the
last event launched in it. On a CPU rank, and if no launch is recorded, a step runs as `ProfilerStep` does on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.facts.inferred_steps import INFERRED_FROM, inferred_note
from lostflops.account.ledger.host_traits import Trait
from lostflops.account.ledger.record import Codes, Ns, Record, RecordedSteps
from lostflops.store.intervals import Intervals

if TYPE_CHECKING:
    from lostflops.store.run import Run


_OFF: Final = 1_000_000
"""Switching a profiler off and on again takes longer than this, in ns."""


class WindowKind(StrEnum):
    STEPS = "steps"
    TRACE = "trace"


@dataclass(frozen=True, slots=True)
class LedgerWindow:
    """Time of a rank that is accounted for: disjoint steps in order, or the whole trace."""

    kind: WindowKind
    number: tuple[int, ...]
    """Step numbers; empty for the whole trace."""
    start: Ns
    """Starts of steps; for the whole trace, of its stretches, several if the profiler was off between steps."""
    stop: Ns
    """Stops of the same."""
    notes: tuple[str, ...] = ()

    @property
    def wall(self) -> int:
        return int((self.stop - self.start).sum())

    @property
    def inside(self) -> Intervals:
        return Intervals.of(self.start, self.stop)


def choose(run: Run, ranks: Sequence[int]) -> WindowKind:
    """Choose steps if every rank that recorded any time has a whole one, else the trace.

    Inferred steps need not hold all that was recorded, so they do not change what the ledger accounts for.
    """
    chosen = f"rank in ({', '.join(map(str, ranks))})"
    if inferred_steps(run, ranks):
        return WindowKind.TRACE
    without = run.rows(
        f"select count(*) from ranks where events > 0 and {chosen} and rank not in (select rank from steps)"
    )[0][0]
    return WindowKind.TRACE if without else WindowKind.STEPS


def inferred_steps(run: Run, ranks: Sequence[int] = ()) -> str:
    """Return the sentence that says what steps were inferred from; empty if they were recorded."""
    chosen = f"rank in ({', '.join(map(str, ranks or run.ranks))})"
    listed = ", ".join(f"'{what}'" for what in INFERRED_FROM)
    rows = run.rows(f"select distinct what from stats where {chosen} and what in ({listed})")
    return inferred_note([what for (what,) in rows])


def window(record: Record, kind: WindowKind, only: Sequence[int] = ()) -> LedgerWindow:
    """Return the rank's window; with `only`, just the steps with these numbers."""
    if kind is WindowKind.TRACE:
        return LedgerWindow(kind, (), *_find_recorded_spans(record))
    edges = step_window(record.steps, record.on_device)
    if not only:
        return edges
    kept = [i for i, number in enumerate(edges.number) if number in only]
    return LedgerWindow(kind, tuple(edges.number[i] for i in kept), edges.start[kept], edges.stop[kept], edges.notes)


def step_window(steps: RecordedSteps, on_device: bool) -> LedgerWindow:
    return _device_steps(steps) if on_device else _host_steps(steps)


def _find_recorded_spans(record: Record) -> tuple[Ns, Ns]:
    """Return the time from the first event to the last, without times between steps when the profiler was off."""
    start, stop = _events(record)
    if not start.size:
        return np.zeros(1, np.int64), np.zeros(1, np.int64)
    steps, holes = record.steps, []
    for last in np.flatnonzero(np.diff(steps.number) > 1).tolist():
        middle = (steps.stop[last] + steps.start[last + 1]) // 2
        before, after = stop[start < middle], start[start >= middle]
        off, on = before.max(initial=start.min()), after.min(initial=stop.max())
        # Where only the numbers of some steps are missing, their events are there.
        if on - off >= max(_OFF, (steps.start[last + 1] - steps.stop[last]) // 2):
            holes.append((off, on))
    return (
        np.array([start.min(), *(on for _, on in holes)], np.int64),
        np.array([*(off for off, _ in holes), stop.max()], np.int64),
    )


def _events(record: Record) -> tuple[Ns, Ns]:
    if record.on_device:
        return record.device.start, record.device.stop
    ops = record.host.having(Trait.OP, [record.training_lane])
    return record.host.start[ops], record.host.stop[ops]


def _device_steps(steps: RecordedSteps) -> LedgerWindow:
    own = np.flatnonzero(steps.device_start >= 0)
    if not own.size and steps.number.size:
        note = "no device event could be assigned to a step by its launch, so step boundaries are those of the host"
        return replace(_host_steps(steps), notes=(note,))
    notes: tuple[str, ...] = ()
    if own.size < steps.number.size:
        empty = np.setdiff1d(steps.number, steps.number[own]).tolist()
        notes = (f"nothing was launched in step {', '.join(map(str, empty))}, so it is not in the ledger",)
    # A copy that was launched ahead on its own stream may start before the step it was launched in has its turn.
    start = np.maximum.accumulate(steps.device_start[own])
    return _join_steps(steps, own, start, np.maximum(steps.device_stop[own], start), notes)


def _host_steps(steps: RecordedSteps) -> LedgerWindow:
    return _join_steps(steps, np.arange(steps.number.size), steps.start, steps.stop, ())


def _join_steps(steps: RecordedSteps, own: Codes, start: Ns, stop: Ns, notes: tuple[str, ...]) -> LedgerWindow:
    """End each step where the next begins, or with its own last event if steps between the two were not recorded."""
    number = steps.number[own]
    unrecorded = np.diff(number) != np.diff(own)
    ends = stop.copy()
    ends[:-1] = np.where(unrecorded, np.minimum(stop[:-1], start[1:]), start[1:])
    return LedgerWindow(WindowKind.STEPS, tuple(number.tolist()), start, ends, notes)
