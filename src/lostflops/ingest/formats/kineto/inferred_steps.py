"""Steps of a trace that marks none: from a scheduler's marks, calls of the optimizer, or repeated kernels.

Inferred steps are those of the host, as `ProfilerStep` would be, so that events are tied to them by their launch. They
are counted under a name of their own (`facts.inferred_steps`), and are dropped if ranks disagree (`agreed_steps`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from lostflops.account.facts.job_phases import MARK
from lostflops.ingest.common.columns import NULL
from lostflops.ingest.formats.kineto.kernel_period import first_of_periods
from lostflops.ingest.timeline.event_kinds import KERNELS, KIND_CODE
from lostflops.ingest.timeline.recording import StepSpan

if TYPE_CHECKING:
    from lostflops.ingest.timeline.recording import Recording

Ns = npt.NDArray[np.int64]

_OPTIMIZER: Final = re.compile(r"Optimizer\.step#")
_FEWEST_UPDATES: Final = 3
"""With at least this many calls of the optimizer, the time between two calls is a step."""
_TOGETHER: Final = 0.1
"""Optimizers called closer together than this fraction of the longest time between two calls share a step."""
_MOST_ROWS: Final = 2_000_000
"""With more device rows than this the order of kernels is not examined: it is held in memory."""
_RUNTIME: Final = KIND_CODE["runtime"]


class _Spans(NamedTuple):
    """Annotations of one lane, in order of time."""

    lane: int
    start: Ns
    stop: Ns


def infer_steps(recording: Recording) -> None:
    """Add steps to a recording that has none; it stays without steps if nothing repeats clearly."""
    if recording.steps:
        return
    for what, infer in (
        ("steps_from_marks", _from_marks),
        ("steps_from_optimizer", _from_optimizer),
        ("steps_from_kernels", _from_kernels),
    ):
        recording.steps = infer(recording)
        if recording.steps:
            recording.losses[what] = len(recording.steps)
            return


def _from_marks(recording: Recording) -> list[StepSpan]:
    """Return steps from marks: a step ends where the next begins; the last ends with its mark."""
    marks = _annotations(recording, MARK)
    if marks is None:
        return []
    # A mark inside another is part of it: a draft model runs within its step.
    outer = np.flatnonzero(marks.start >= np.concatenate(([NULL], np.maximum.accumulate(marks.stop)[:-1])))
    start = marks.start[outer]
    return _spans(marks.lane, start, np.append(start[1:], marks.stop[outer[-1]]))


def _from_optimizer(recording: Recording) -> list[StepSpan]:
    """Return steps from the end of one update to the end of the next."""
    updates = _annotations(recording, _OPTIMIZER)
    if updates is None or updates.start.size < _FEWEST_UPDATES:
        return []
    between = updates.start[1:] - updates.stop[:-1]
    last = np.append(between > _TOGETHER * between.max(), True)
    ends = updates.stop[last]
    if ends.size < _FEWEST_UPDATES or bool((np.diff(ends) <= 0).any()):
        return []
    return _spans(updates.lane, ends[:-1], ends[1:])


def _from_kernels(recording: Recording) -> list[StepSpan]:
    """Return steps from the launch of the first kernel of a period to that of the next."""
    if not 0 < recording.device.rows <= _MOST_ROWS:
        return []
    names, correlation, start, stop = _busiest_stream(recording)
    firsts = first_of_periods(names, start, stop)
    launches = _launches(recording, correlation[firsts])
    if firsts.size < 2 or len(launches) < firsts.size:
        return []
    lanes, begins = np.array(launches, np.int64).T
    if np.unique(lanes).size > 1 or bool((np.diff(begins) <= 0).any()):
        return []
    return _spans(int(lanes[0]), begins[:-1], begins[1:])


def _spans(lane: int, start: Ns, stop: Ns) -> list[StepSpan]:
    edges = zip(start.tolist(), stop.tolist(), strict=True)
    return [StepSpan(number, lane, begin, end) for number, (begin, end) in enumerate(edges)]


def _annotations(recording: Recording, pattern: re.Pattern[str]) -> _Spans | None:
    """Return the annotations with a name that matches, on the thread that has most of them."""
    if not recording.annotations:
        return None
    lane, start, stop, name = (np.concatenate(column) for column in zip(*recording.annotations, strict=True))
    texts = recording.vocabulary.names.texts()
    wanted = [code for code in np.unique(name).tolist() if pattern.match(texts[code] or "")]
    own = np.flatnonzero(np.isin(name, wanted))
    if not own.size:
        return None
    lanes, counts = np.unique(lane[own], return_counts=True)
    chosen = int(lanes[counts.argmax()])
    own = own[lane[own] == chosen]
    own = own[np.argsort(start[own], kind="stable")]
    return _Spans(chosen, start[own], stop[own])


def _busiest_stream(recording: Recording) -> tuple[npt.NDArray[np.uint32], Ns, Ns, Ns]:
    """Return name, correlation, start and stop of the kernels on the stream that was busy longest, in order of time."""
    lane, name, correlation, start, dur = (np.concatenate(parts) for parts in zip(*_kernels(recording), strict=True))
    if not lane.size:  # copies alone
        return name, correlation, start, dur
    busy = np.bincount(lane, dur)
    own = np.flatnonzero(lane == busy.argmax())
    own = own[np.argsort(start[own], kind="stable")]
    return name[own], correlation[own], start[own], start[own] + dur[own]


def _kernels(recording: Recording) -> Iterator[tuple[npt.NDArray[Any], ...]]:
    for piece in recording.device.pieces():
        own = np.isin(piece["kind"], KERNELS)
        yield tuple(piece[name][own] for name in ("lane", "name", "correlation", "start", "dur"))


def _launches(recording: Recording, wanted: Ns) -> list[tuple[int, int]]:
    """Return lane and start of each launch, in the order of `wanted`; launches that the trace lacks are left out."""
    found: dict[int, tuple[int, int]] = {}
    for piece in recording.host.pieces() if wanted.size else ():
        own = np.flatnonzero((piece["kind"] == _RUNTIME) & np.isin(piece["correlation"], wanted))
        for row in own.tolist():
            found.setdefault(int(piece["correlation"][row]), (int(piece["lane"][row]), int(piece["start"][row])))
    return [found[correlation] for correlation in wanted.tolist() if correlation in found]
