"""Stretches of a rank's time: each on one line of the ledger and, if it is a wait, for one late rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lostflops.account.ledger.lines import LINES, WAIT_LINES
from lostflops.account.ledger.partition import Partition
from lostflops.account.ledger.record import Codes, Ns, Record
from lostflops.account.ledger.shares import split_by_event


@dataclass(frozen=True, slots=True)
class RankStretches:
    """Stretches of one rank: disjoint and in order of time. Two that touch differ in their line or late rank."""

    start: Ns
    """Start on the rank's own clock."""
    stop: Ns
    line: Codes
    """Place in LINES, from 1."""
    late: Codes
    """Rank that was waited for; -1 if it is unknown, and on lines without waits."""


def cut_stretches(record: Record, made: Partition) -> RankStretches:
    """Return the stretches of a partition. A wait of several calls at once is for the late rank of the first."""
    parts = [_cut_line(record, made, line) for line in LINES]
    line = np.repeat(np.arange(1, len(LINES) + 1), [start.size for start, _, _ in parts])
    start, stop, late = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(start, kind="stable")
    return RankStretches(start[order], stop[order], line[order], late[order])


def _cut_line(record: Record, made: Partition, line: str) -> tuple[Ns, Ns, Codes]:
    """Return start, stop and late rank of the stretches of a line."""
    span = made.lines[line]
    if line not in WAIT_LINES or not len(span):
        return span.start, span.stop, np.full(len(span), -1, np.int64)
    calls = record.communication
    own = calls.transfer == (line == "comm.bubble")
    rows, start, stop = split_by_event(calls.start[own], calls.ready[own], span)
    late = calls.late[own][rows]
    begins = np.concatenate(([True], (start[1:] != stop[:-1]) | (late[1:] != late[:-1])))
    return start[begins], stop[np.concatenate((begins[1:], [True]))], late[begins]
