"""Profiles by which ranks are compared: lines of each step, waits by late rank, and number of kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from lostflops.account.ledger.by_rank import Question
from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.partition import Partition, partition
from lostflops.account.ledger.parts import communication_shares
from lostflops.account.ledger.record import KERNEL, Codes, Ns, Record
from lostflops.account.ledger.windows import LedgerWindow, WindowKind


class WaitedFor(NamedTuple):
    """Exposed waiting in a group, for one rank."""

    group: str
    late: int
    is_transfer: bool
    ns: int


@dataclass(frozen=True, slots=True)
class StepProfile:
    """Figures of one rank by which ranks are compared."""

    rank: int
    steps: Codes
    """Step numbers; a window of the whole trace is one step, -1."""
    lines: Ns
    """Time by step (rows) and line of the ledger (columns), in ns."""
    waited: tuple[WaitedFor, ...]
    pieces: Codes
    """Number of kernels that compute, or of ops on a CPU rank, by step."""


def profile_window(record: Record, chosen: LedgerWindow) -> StepProfile:
    return profile(record, partition(record, chosen))


def profile(record: Record, made: Partition) -> StepProfile:
    chosen = made.window
    lines = np.stack([made.lines[line].within(chosen.start, chosen.stop) for line in LINES], axis=1)
    pieces = _pieces(record, chosen.start, chosen.stop)
    if chosen.kind is WindowKind.TRACE:
        steps, lines, pieces = np.array([-1]), lines.sum(axis=0, keepdims=True), pieces.sum(keepdims=True)
    else:
        steps = np.array(chosen.number, np.int64)
    return StepProfile(record.rank, steps, lines, _sum_waits(record, made), pieces)


def _sum_waits(record: Record, made: Partition) -> tuple[WaitedFor, ...]:
    calls = record.communication
    shares = np.zeros(calls.start.size, np.int64)
    for line, ns in communication_shares(record, made.lines):
        shares += 0 if line == "comm.transfer" else ns
    rows = np.flatnonzero((calls.late >= 0) & (shares > 0))
    # One number for all three: sorting columns is many times as slow.
    late = 2 * calls.late[rows] + calls.transfer[rows]
    ranks = int(late.max(initial=0)) + 1
    keys, which = np.unique(calls.group[rows] * ranks + late, return_inverse=True)
    total = np.zeros(keys.size, np.int64)
    np.add.at(total, which, shares[rows])
    return tuple(
        WaitedFor(record.collectives.name(key // ranks), key % ranks // 2, bool(key % ranks % 2), ns)
        for key, ns in zip(keys.tolist(), total.tolist(), strict=True)
    )


def _pieces(record: Record, start: Ns, stop: Ns) -> Codes:
    if record.on_device:
        begun = np.sort(record.device.start[record.device.kind == KERNEL])
    else:
        begun = np.sort(record.host.start[record.host.computing(record.training_lane)])
    return np.searchsorted(begun, stop) - np.searchsorted(begun, start)


PROFILE: Final = Question("profile", StepProfile, profile_window)
QUESTIONS: Final = {PROFILE.name: PROFILE}
