"""Compute of a rank in pieces: kernels, or ops of a CPU rank, with the op, the shapes and the phase of each.

Pieces that are equal in all of these are one row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lostflops.account.facts.kernel_classes import CLASSES, op_class
from lostflops.account.ledger.batches import BatchVocabulary, RankBatch
from lostflops.account.ledger.partition import Partition
from lostflops.account.ledger.parts import kernel_classes, ops_around
from lostflops.account.ledger.phases import PHASES, phases_at
from lostflops.account.ledger.record import Codes, Ns, Record
from lostflops.account.ledger.shares import by_event

if TYPE_CHECKING:
    from lostflops.store.run import Run

_KEY = "hash(name, shapes, dtypes)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputePiece:
    """Kernels, or ops of a CPU rank, that are alike in class, name, op, shapes, dtypes and phase."""

    kernel_class: str
    name: str
    told: tuple[str, str, str]
    """Name, shapes and dtypes of the innermost op around the launch, or of the op on a CPU; empty if not recorded."""
    phase: str
    count: int
    ns: int
    """Time that they ran."""
    own_ns: int
    """Part of the line `compute` that is theirs."""
    event: int
    """Event of the longest of them."""

    @property
    def op(self) -> str:
        return self.told[0]

    @property
    def shapes(self) -> str:
        return self.told[1]

    @property
    def dtypes(self) -> str:
        return self.told[2]


def pieces(run: Run, record: Record, made: Partition) -> list[ComputePiece]:
    """Return the pieces that started in the window."""
    rows, own, classes = _on_device(record, made) if record.on_device else _on_thread(record, made)
    events = record.device if record.on_device else record.host
    inside = made.window.inside.within(events.start[rows], events.start[rows] + 1) > 0
    rows, own, classes = rows[inside], own[inside], classes[inside]
    calls = record.device.launch[rows] if record.on_device else rows
    ops = ops_around(record, calls) if record.on_device else rows
    told, values = _arguments(run, record, ops)
    phase = _phases(record, calls)
    ns = events.stop[rows] - events.start[rows]
    columns = np.stack((classes, events.name[rows], told, phase))
    keys, which = np.unique(columns, axis=1, return_inverse=True)
    which = which.ravel()
    order = np.lexsort((ns, which))
    longest = order[np.searchsorted(which[order], np.arange(keys.shape[1]), side="right") - 1]
    sums = (_sum_by_key(which, values_, keys.shape[1]) for values_ in (np.ones(rows.size, np.int64), ns, own))
    return [
        ComputePiece(
            kernel_class=CLASSES[code],
            name=record.names[name],
            told=values[argument],
            phase=PHASES[at],
            count=count,
            ns=spent,
            own_ns=held,
            event=event,
        )
        for (code, name, argument, at), count, spent, held, event in zip(
            keys.T.tolist(), *(one.tolist() for one in sums), events.event[rows[longest]].tolist(), strict=True
        )
    ]


def _on_device(record: Record, made: Partition) -> tuple[Codes, Ns, Codes]:
    """Return rows, what each has of the line `compute`, and its class."""
    device, classes = record.device, kernel_classes(record)
    rows = np.flatnonzero(classes >= 0)
    return rows, by_event(device.start[rows], device.stop[rows], made.lines["compute"]), classes[rows]


def _on_thread(record: Record, made: Partition) -> tuple[Codes, Ns, Codes]:
    """Return the same for the outermost ops: those that are called by others have nothing left of the line."""
    host = record.host
    rows = host.computing(record.training_lane)
    own = by_event(host.start[rows], host.stop[rows], made.lines["compute"])
    rows, own = rows[own > 0], own[own > 0]
    codes = {name: CLASSES.index(op_class(record.names[name])) for name in np.unique(host.name[rows]).tolist()}
    return rows, own, np.array([codes[name] for name in host.name[rows].tolist()], np.int64)


def _phases(record: Record, calls: Codes) -> Codes:
    host = record.host
    if not host.start.size:
        return np.full(calls.size, PHASES.index("other"), np.int64)
    known = calls >= 0
    return phases_at(record, np.where(known, host.start[calls], 0), np.where(known, host.lane[calls], -1))


def _arguments(run: Run, record: Record, ops: Codes) -> tuple[Codes, tuple[tuple[str, str, str], ...]]:
    """Return for each op an index into name, shapes and dtypes, and these; the last of them means no op."""
    rows = f"events where rank = {record.rank} and kind = 'op'"
    words = BatchVocabulary(run, _KEY, "name, coalesce(shapes, ''), coalesce(dtypes, '')", rows)
    found = RankBatch(run, f"select rank, event, {_KEY} as key from {rows} order by event", [record.rank]).of(
        record.rank
    )
    values = (*((name, shapes, dtypes) for name, shapes, dtypes in words.values), ("", "", ""))
    codes = np.full(ops.size, len(values) - 1, np.int64)
    known = ops >= 0
    at = np.searchsorted(found["event"], record.host.event[ops[known]])
    codes[known] = words.codes(found["key"][at])
    return codes, values


def _sum_by_key(which: Codes, values: Ns, size: int) -> Ns:
    sums = np.zeros(size, np.int64)
    np.add.at(sums, which, values)
    return sums
