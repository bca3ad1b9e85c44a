"""The exact ledger of a simulated rank: its window cut into segments, each on one line.

The rules are those of the time ledger, applied to what the simulator knows: busy time by priority, and each idle
gap by the event that ends it, that event's launch, and what the launching thread did before the launch.

A blocking call explains a gap when it was entered before the gap began: a call made on a device that is already
idle has not emptied it. Lines that the simulator cannot produce stay zero: `idle.bubble` (a stage that
waits always has a receive on the device: `comm.bubble`) and `unexplained` (it knows every launch).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from .records import MAIN, DeviceEvent, RankRecord

LINES = (
    "compute",
    "comm.transfer",
    "comm.wait",
    "comm.bubble",
    "copy",
    "idle.data",
    "idle.sync",
    "idle.alloc",
    "idle.compile",
    "idle.host",
    "idle.python",
    "idle.dependency",
    "idle.bubble",
    "unexplained",
)

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece [start, stop) of the window on one line."""

    start: int
    stop: int
    line: str
    late_rank: int = -1
    """Rank that is waited for on `comm.wait` and `comm.bubble`; -1 on other lines."""


def step_edges(record: RankRecord) -> dict[int, Span]:
    """Return the edges of steps: step k is [d_k, d_k+1), where d_k is the earliest start of what was launched in it;
    the last step ends with its last event."""
    starts: dict[int, int] = {}
    for event in record.device_events:
        starts[event.step] = min(event.start, starts.get(event.step, event.start))
    steps = sorted(starts)
    last_stop = max(event.stop for event in record.device_events if event.step == steps[-1])
    stops = [*(starts[step] for step in steps[1:]), last_stop]
    return {step: (starts[step], stop) for step, stop in zip(steps, stops, strict=True)}


def segments(record: RankRecord) -> list[Segment]:
    """Return the rank's whole window, in order and without holes."""
    edges = step_edges(record).values()
    begin, end = min(start for start, _ in edges), max(stop for _, stop in edges)
    enders: dict[int, DeviceEvent] = {}
    for event in record.device_events:
        known = enders.get(event.start)
        if known is None or event.launch.start < known.launch.start:
            enders[event.start] = event
    latency = min(event.start - event.launch.start for event in record.device_events)
    result: list[Segment] = []
    position = begin
    for segment in _busy(record):
        if segment.start > position:
            result += _explain(record, position, segment.start, enders[segment.start], latency)
        result.append(segment)
        position = segment.stop
    return [Segment(s.start, min(s.stop, end), s.line, s.late_rank) for s in result if s.start < end]


def _busy(record: RankRecord) -> list[Segment]:
    """Sweep over device events; each instant belongs to the first line of LINES that is active."""
    marks: dict[int, list[tuple[bool, int, str, int]]] = {}
    for key, event in enumerate(record.device_events):
        for start, stop, line, late_rank in _claims(event):
            if start < stop:
                marks.setdefault(start, []).append((True, key, line, late_rank))
                marks.setdefault(stop, []).append((False, key, line, late_rank))
    active: dict[str, dict[int, int]] = {line: {} for line in LINES[:5]}
    result: list[Segment] = []
    previous = 0
    for time in sorted(marks):
        for line, holders in active.items():
            if holders:
                # Of several waits at once, the one entered first is charged.
                result.append(Segment(previous, time, line, next(iter(holders.values()))))
                break
        for opens, key, line, late_rank in marks[time]:
            if opens:
                active[line][key] = late_rank
            else:
                del active[line][key]
        previous = time
    return result


def _claims(event: DeviceEvent) -> list[tuple[int, int, str, int]]:
    collective = event.collective
    if collective is None:
        return [(event.start, event.stop, event.role, -1)]
    waiting = "comm.bubble" if collective.is_p2p else "comm.wait"
    complete = collective.last_arrival
    return [
        (event.start, complete, waiting, collective.last_rank),
        (complete, event.stop, "comm.transfer", -1),
    ]


def _explain(record: RankRecord, start: int, stop: int, ender: DeviceEvent, latency: int) -> list[Segment]:
    """Split the idle gap [start, stop) that `ender` ends."""
    launch = ender.launch.start
    if launch < start:
        return [Segment(start, stop, "idle.dependency")]
    thread = ender.launch.thread
    layers = (
        ("idle.data", _within(record.data_spans, start, launch)),
        ("idle.sync", _refill(record, start, launch)),
        ("idle.alloc", _within(record.alloc_spans[thread], start, launch)),
        ("idle.compile", _within(record.compile_spans, start, launch) if thread == MAIN else []),
        ("idle.host", _within(record.op_spans[thread], start, launch)),
    )
    result = _paint(start, launch, layers)
    arrived = min(launch + latency, stop)
    result.append(Segment(launch, arrived, "idle.host"))
    if arrived < stop:
        result.append(Segment(arrived, stop, "idle.dependency"))
    return result


def _refill(record: RankRecord, start: int, launch: int) -> list[Span]:
    """Return the span from the start of the gap to the first launch after the return of the blocking call that emptied
    the device."""
    index = bisect_right(record.sync_spans, start, key=lambda span: span[0]) - 1
    if index < 0:
        return []
    returned = record.sync_spans[index][1]
    first = record.launch_starts[bisect_left(record.launch_starts, returned)]
    return [(start, min(first, launch))] if first > start else []


def _within(spans: Sequence[Span], start: int, stop: int) -> list[Span]:
    first = bisect_right(spans, start, key=lambda span: span[1])
    last = bisect_left(spans, stop, key=lambda span: span[0])
    return [(max(begin, start), min(end, stop)) for begin, end in spans[first:last]]


def _paint(start: int, stop: int, layers: Sequence[tuple[str, list[Span]]]) -> list[Segment]:
    """Give each instant to the first layer that covers it; instants without a layer are Python."""
    cuts = sorted({start, stop, *(edge for _, spans in layers for span in spans for edge in span)})
    result = []
    for begin, end in pairwise(cuts):
        covering = (line for line, spans in layers if any(s <= begin and end <= e for s, e in spans))
        result.append(Segment(begin, end, next(covering, "idle.python")))
    return result
