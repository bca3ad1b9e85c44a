"""The state of the program at each memory event: its phase, its place in the program, and its pass."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from lostflops.account.ledger.host_traits import Trait
from lostflops.account.ledger.phases import BACKWARD, FORWARD, OTHER, phases_at
from lostflops.account.ledger.record import MEMCPY, Record, distinct
from lostflops.account.memory.blocks import Codes, Flags, Ns
from lostflops.account.memory.events import MemoryEvents
from lostflops.account.memory.sites import Sites, SiteSpans
from lostflops.store.intervals import Intervals

_FROM_HOST: Final = re.compile("HtoD|HostToDevice", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Phase, place and pass of the program at each event."""

    time: Ns
    phase: Codes
    sites: Sites
    copied: Flags
    """Whether the op copies from the host to the device."""
    known: Flags
    """Whether anything shows what the program did."""
    updates: Ns
    """Starts of the optimizers' steps, in order of time."""
    calls: Ns
    """Starts of modules, in order of time."""

    @property
    def again(self) -> Flags:
        """Whether it repeats forward ops inside a backward pass."""
        found: Flags = self.sites.again & (self.phase == BACKWARD)
        return found

    def passes(self) -> Codes:
        """Return the number of the stretch of one phase that each event is in."""
        return stretches(self.phase)

    def repeats(self) -> Codes:
        """Return the same, with repeated forward ops as a phase of their own."""
        return stretches(np.where(self.again, -1, self.phase))

    def is_input(self) -> Flags:
        """Return if an event is ahead of the first module call of its forward pass; False if no call is recorded."""
        number = self.passes()
        first = np.searchsorted(number, number)
        begun = np.where(first > 0, self.time[first - 1], np.iinfo(np.int64).min)
        called = np.searchsorted(self.calls, self.time)
        ahead = (called == np.searchsorted(self.calls, begun)) & (called < self.calls.size)
        found: Flags = (self.phase == FORWARD) & (self.sites.module == 0) & ahead
        return found


def moments_of(record: Record, spans: SiteSpans, events: MemoryEvents) -> Moments:
    sites = spans.at(events.time, events.lane)
    updates = record.host.spans(Trait.OPTIMIZER).start
    phase, copied = _phases(record, events), _copies(record, spans)[sites.top]
    known = (phase != OTHER) | (sites.top < len(spans))
    return Moments(
        time=events.time, phase=phase, sites=sites, copied=copied, known=known, updates=updates, calls=spans.calls
    )


def _phases(record: Record, events: MemoryEvents) -> Codes:
    """Return phases as the ledger has them, with two differences.

    Hooks and the engine's own work between two nodes are part of the backward pass. Threads without autograd, such as
    gloo's, are in the phase that training is in.
    """
    found = phases_at(record, events.time, events.lane)
    found[(found == FORWARD) & (backward_passes(record).within(events.time, events.time + 1) > 0)] = BACKWARD
    trains = distinct(record.numbered.lane) if record.numbered.lane.size else distinct(record.host.lane)
    own = np.isin(events.lane, [*trains, record.training_lane]) & (events.lane >= 0)
    before = np.maximum.accumulate(np.where(own, np.arange(own.size), -1))
    return found[np.where(before >= 0, before, int(own.argmax()))] if own.any() else found


def backward_passes(record: Record) -> Intervals:
    """Return passes, from first node to last, with no forward op that autograd records and no update between."""
    host, numbered = record.host, record.numbered
    nodes = host.spans(Trait.BACKWARD)
    forward = numbered.start[numbered.forward_thread == 0]
    forward = forward[nodes.within(forward, forward + 1) == 0]
    if not forward.size or not len(nodes):
        return nodes
    ends = np.sort(np.concatenate((forward, host.spans(Trait.OPTIMIZER).start, record.steps.start)))
    between = np.searchsorted(ends, nodes.start[1:]) - np.searchsorted(ends, nodes.stop[:-1])
    last = np.append(between > 0, True)
    return Intervals(nodes.start[np.append(True, last[:-1])], nodes.stop[last])


def _copies(record: Record, spans: SiteSpans) -> Flags:
    """Return for each span, and no span at the end, whether a copy from the host to the device was launched in it."""
    device, found = record.device, np.zeros(len(spans) + 1, np.bool_)
    from_host = np.array([_FROM_HOST.search(name) is not None for name in record.names], np.bool_)
    rows = np.flatnonzero((device.kind == MEMCPY) & (device.launch >= 0))
    launch = device.launch[rows[from_host[device.name[rows]]]]
    found[spans.at(record.host.start[launch], record.host.lane[launch]).top] = True
    found[-1] = False
    return found


def stretches(kind: Codes) -> Codes:
    """Number the stretches of equal kinds.

    >>> stretches(np.array([0, 0, 1, 0])).tolist()
    [0, 0, 1, 2]
    """
    return np.append(0, (kind[1:] != kind[:-1]).cumsum())[: kind.size]
