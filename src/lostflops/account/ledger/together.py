"""Overlap of activities on a rank: every nanosecond with any activity, by all that ran at once.

Activities are compute, each operation of communication, and copies. Those with compute sum to all compute, those of
communication without compute to its lines, and copies alone to theirs. On a CPU rank compute is that of the training
thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from lostflops.account.ledger.partition import Partition
from lostflops.account.ledger.record import MEMCPY, UNKNOWN_OP, Record
from lostflops.store.intervals import Intervals

Together = dict[tuple[str, ...], int]
"""Time by what ran, in the order of activities, in ns."""
COMPUTE: Final = "compute"
COPY: Final = "copy"
MOST: Final = 50
"""Most operations that are kept apart: activities are bits of a number."""


def together(record: Record, made: Partition) -> Together:
    activities = {COMPUTE: made.compute, **_communication(record, made.window.inside)}
    if record.on_device:
        copies = record.device.kind >= MEMCPY
        span = Intervals.of(record.device.start[copies], record.device.stop[copies])
        activities[COPY] = span & made.window.inside
    return at_once(activities)


def _communication(record: Record, inside: Intervals) -> dict[str, Intervals]:
    calls, found = record.communication, dict[str, Intervals]()
    for place, op in enumerate(np.unique(calls.op).tolist()):
        own = calls.op == op
        name = record.collectives.ops[op] if op >= 0 and place < MOST else UNKNOWN_OP
        span = Intervals.of(calls.start[own], calls.stop[own]) & inside
        found[name] = found[name] | span if name in found else span
    return dict(sorted(found.items()))


def at_once(activities: Mapping[str, Intervals]) -> Together:
    """Return the time of each set of activities that ran at the same time.

    >>> at_once({"a": Intervals.of([0], [6]), "b": Intervals.of([4], [9])})
    {('a',): 4, ('b',): 3, ('a', 'b'): 2}
    """
    names, spans = [*activities], [*activities.values()]
    times = np.concatenate([np.empty(0, np.int64), *(edge for span in spans for edge in (span.start, span.stop))])
    bits = np.repeat(np.left_shift(1, np.arange(len(spans))), [2 * len(span) for span in spans])
    order = np.argsort(times, kind="stable")
    running, lasted = np.bitwise_xor.accumulate(bits[order])[:-1], np.diff(times[order])
    sets, which = np.unique(running, return_inverse=True)
    sums = np.zeros(sets.size, np.int64)
    np.add.at(sums, which, lasted)
    return {
        _decode_names(code, names): ns for code, ns in zip(sets.tolist(), sums.tolist(), strict=True) if code and ns
    }


def _decode_names(code: int, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for place, name in enumerate(names) if code >> place & 1)
