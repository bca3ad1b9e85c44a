"""The lines of a rank's ledger by phase of the job: rollout, reward and train, or prefill and decode of a server.

On the host, a phase is the time of its annotation; of a scheduler's mark, the time until the next mark. Work on a
device has the phase of its launch. While a device is idle, the phase is the host's, and from the launch of the event
that ends the gap, that of this launch. On a CPU rank every instant has the phase of the host. The lines sum to the
rank's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lostflops.account.facts.job_phases import NO_PHASE, name_phases, parse_mark
from lostflops.account.ledger.host_traits import Trait
from lostflops.account.ledger.lines import BUSY_LINES, LINES
from lostflops.account.ledger.partition import Partition
from lostflops.account.ledger.record import Codes, Ns, Record
from lostflops.store.intervals import Intervals

Shares = Sequence[tuple[str, Codes, Ns]]


@dataclass(frozen=True, slots=True)
class HostPhases:
    """Phases of the host: disjoint, in order of time."""

    start: Ns
    stop: Ns
    code: Codes
    """Index into `names`."""
    names: tuple[str, ...]

    def at(self, times: Ns) -> Codes:
        """Return the phase at each time, as an index into `names`; after the last for none."""
        if not self.start.size:
            return np.full(times.size, len(self.names), np.int64)
        row = np.searchsorted(self.start, times, side="right") - 1
        inside = (row >= 0) & (times < self.stop[row])
        return np.where(inside, self.code[row], len(self.names))

    def sums(self, span: Intervals) -> Ns:
        """Return how much of the span is in each phase, and at the end how much is in none."""
        found = np.zeros(len(self.names) + 1, np.int64)
        np.add.at(found, self.code, span.within(self.start, self.stop))
        found[-1] = span.total - found.sum()
        return found


def by_job_phase(record: Record, made: Partition, shares: Shares) -> dict[str, dict[str, int]]:
    """Return lines by phase of the job; `shares` are the times of device rows on each line, a row of -1 for none."""
    host = record.keep("job phases", lambda: find_host_phases(record))
    if not host.names:
        return {NO_PHASE: made.ns()}
    sums = _on_device(record, made, host, shares) if made.gaps is not None else {}
    table = np.stack([sums[line] if line in sums else host.sums(made.lines[line]) for line in LINES], axis=1)
    names = [name for name, row in zip((*host.names, NO_PHASE), table, strict=True) if row.any()]
    return {
        name: dict(zip(LINES, row, strict=True))
        for name, row in zip(names, table[table.any(axis=1)].tolist(), strict=True)
    }


def find_host_phases(record: Record) -> HostPhases:
    """Return the phases that the program marks; if it marks none, the batches that a scheduler marks."""
    host = record.host
    rows = host.having(Trait.ANNOTATION)
    texts = {code: record.names[code] for code in np.unique(host.name[rows]).tolist()}
    phases = name_phases(texts.values())
    named = {code: phases[text] for code, text in texts.items() if text in phases}
    if named:
        rows = _outermost(record, rows, named)
        return _encode(host.start[rows], host.stop[rows], [named[code] for code in host.name[rows].tolist()])
    batches = {code: batch.kind for code, text in texts.items() if (batch := parse_mark(text))}
    rows = _outermost(record, rows, batches)
    ends = np.concatenate((host.start[rows[1:]], host.stop[rows[-1:]]))
    return _encode(host.start[rows], ends, [batches[code] for code in host.name[rows].tolist()])


def _outermost(record: Record, rows: Codes, wanted: dict[int, str]) -> Codes:
    """Return annotations with a wanted name, on the thread that has most of them, without those inside another."""
    host = record.host
    rows = rows[np.isin(host.name[rows], list(wanted))]
    if not rows.size:
        return rows
    rows = rows[host.lane[rows] == np.bincount(host.lane[rows]).argmax()]
    rows = rows[np.lexsort((-host.stop[rows], host.start[rows]))]
    before = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(host.stop[rows])[:-1]))
    found: Codes = rows[(host.start[rows] >= before) & (host.stop[rows] > host.start[rows])]
    return found


def _encode(start: Ns, stop: Ns, names: list[str]) -> HostPhases:
    texts = tuple(dict.fromkeys(names))
    return HostPhases(start, stop, np.array([texts.index(name) for name in names], np.int64), texts)


def _on_device(record: Record, made: Partition, host: HostPhases, shares: Shares) -> dict[str, Ns]:
    """Return the time of each line in each phase, and at the end in none."""
    launched = np.append(_phases_of_launches(record, host), len(host.names))  # row -1: no event
    sums = {line: np.zeros(len(host.names) + 1, np.int64) for line in LINES}
    for line, rows, ns in shares:
        if line in BUSY_LINES:
            np.add.at(sums[line], launched[rows], ns)
    assert made.gaps is not None
    gaps = made.gaps
    known = np.append(record.device.launch >= 0, False)[gaps.ender]
    launch = np.append(record.device.launch, -1)[gaps.ender]
    times = record.host.start[launch] if record.host.start.size else gaps.stop
    middle = np.clip(np.where(known, times, gaps.stop), gaps.start, gaps.stop)
    waiting = Intervals.of(gaps.start, middle)
    for line in (line for line in LINES if line not in BUSY_LINES):
        sums[line] += host.sums(made.lines[line] & waiting)
        np.add.at(sums[line], launched[gaps.ender], made.lines[line].within(middle, gaps.stop))
    return sums


def _phases_of_launches(record: Record, host: HostPhases) -> Codes:
    launch = record.device.launch
    if not record.host.start.size:
        return np.full(launch.size, len(host.names), np.int64)
    return np.where(launch >= 0, host.at(record.host.start[launch]), len(host.names))
