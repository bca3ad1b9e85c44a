"""What ranks are compared by: the lines of each step, whom a rank waited for, and how much it ran."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lostflops.ledger.lines import LINES
from lostflops.ledger.partition import Partition, partition
from lostflops.ledger.parts import communication_shares
from lostflops.ledger.record import KERNEL, Codes, Ns, Record, records
from lostflops.ledger.windows import WindowKind, window

if TYPE_CHECKING:
    from lostflops.ledger.scope import Scope
    from lostflops.store.run import Run


@dataclass(frozen=True, slots=True)
class Profile:
    """`lines` has a row per step and a column per line of the ledger; a window of the whole trace is one step, -1.
    `waited` is exposed waiting by the rank it was for; `pieces` are the kernels that compute, or ops on a CPU rank."""

    rank: int
    steps: Codes
    lines: Ns
    waited: dict[int, int]
    pieces: Codes


def profiles(run: Run, asked: Scope, progress: Callable[[int, int], None] | None = None) -> Iterator[Profile]:
    for done, record in enumerate(records(run, asked.ranks)):
        if progress is not None:
            progress(done, len(asked.ranks))
        yield profile(record, partition(record, window(record, asked.kind, asked.steps)))


def profile(record: Record, made: Partition) -> Profile:
    chosen = made.window
    steps = np.array([-1] if chosen.kind is WindowKind.TRACE else chosen.number, np.int64)
    lines = np.stack([made.lines[line].within(chosen.start, chosen.stop) for line in LINES], axis=1)
    return Profile(record.rank, steps, lines, _waited(record, made), _pieces(record, chosen.start, chosen.stop))


def _waited(record: Record, made: Partition) -> dict[int, int]:
    late, found = record.communication.late, {}
    shares = sum(ns for line, ns in communication_shares(record, made.lines) if line != "comm.transfer")
    for rank in np.unique(late[late >= 0]).tolist():
        found[rank] = int(np.sum(shares, where=late == rank))
    return found


def _pieces(record: Record, start: Ns, stop: Ns) -> Codes:
    if record.on_device:
        begun = np.sort(record.device.start[record.device.kind == KERNEL])
    else:
        begun = np.sort(record.host.start[record.host.computing(record.training_lane)])
    return np.searchsorted(begun, stop) - np.searchsorted(begun, start)
