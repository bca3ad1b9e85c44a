"""The lines of a rank's ledger by module of the model. They sum to the lines, as integers.

On a device, busy time has the module of its event, and an idle gap that of the event that ends it. On a CPU rank, an
instant has the module of the innermost op or module around it on the training thread, and time between two belongs to
the next. Communication has the module that launched it, if the trace records that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from lostflops.account.ledger.lines import COMM_LINES, LINES
from lostflops.account.ledger.nesting import Nest
from lostflops.account.ledger.partition import Partition
from lostflops.account.ledger.parts import communication_shares
from lostflops.account.ledger.record import Codes, Ns, Record

NO_MODULE: Final = "(no module)"
Shares = Sequence[tuple[str, Codes, Ns]]


def by_module(record: Record, made: Partition, shares: Shares) -> dict[str, dict[str, int]]:
    """Return lines by module; `shares` are the times of device rows on each line, with a row of -1 for none."""
    if not any(record.modules):
        return {NO_MODULE: made.ns()}
    if record.on_device:
        sums = {line: _sums(record, record.device.module, rows, ns) for line, rows, ns in shares}
    else:
        sums = _on_thread(record, made)
    table = np.stack([sums.get(line, np.zeros(len(record.modules) + 1, np.int64)) for line in LINES], axis=1)
    found: dict[str, dict[str, int]] = {}
    for name, row in zip((*record.modules, ""), table.tolist(), strict=True):
        if any(row):
            lines = found.setdefault(name or NO_MODULE, dict.fromkeys(LINES, 0))
            for line, ns in zip(LINES, row, strict=True):
                lines[line] += ns
    return found


def layer_of(module: str) -> str:
    """Return the module's name up to its first number.

    >>> layer_of("model.layers.3.attention.query"), layer_of("head"), layer_of("(no module)")
    ('model.layers.3', 'head', '(no module)')
    """
    parts = module.split(".")
    first = next((place for place, part in enumerate(parts) if part.isdecimal()), len(parts))
    return ".".join(parts[: first + 1])


def _sums(record: Record, codes: Codes, rows: Codes, ns: Ns) -> Ns:
    """Return the time of each module, and at the end the time that belongs to no module."""
    none = len(record.modules)
    sums = np.zeros(none + 1, np.int64)
    np.add.at(sums, np.where(rows >= 0, codes[rows], none) if codes.size else np.full(rows.size, none), ns)
    return sums


def _on_thread(record: Record, made: Partition) -> dict[str, Ns]:
    calls = np.arange(record.gloo.start.size)
    found = {
        line: _sums(record, record.gloo.module, calls, ns) for line, ns in communication_shares(record, made.lines)
    }
    edges, codes = stretches(record)
    stretch = np.arange(codes.size)
    for line in LINES:
        if line not in COMM_LINES:
            found[line] = _sums(record, codes, stretch, made.lines[line].within(edges[:-1], edges[1:]))
    return found


def stretches(record: Record) -> tuple[Ns, Codes]:
    """Return edges from before all to after all, and the module between each two of them."""
    placed = record.placed
    own = np.flatnonzero(placed.lane == record.training_lane)
    start, stop, none = placed.start[own], placed.stop[own], len(record.modules)
    inside = np.unique(np.concatenate((start, stop)))
    around = Nest(start, stop).innermost(inside)
    module = np.concatenate((placed.module[own], [none]))[around]
    # What nothing is around belongs to what comes next, also before the first; after the last comes nothing.
    covered = np.concatenate(([False], around >= 0))
    codes = np.concatenate(([none], module))
    following = np.minimum.accumulate(np.where(covered, np.arange(codes.size), codes.size)[::-1])[::-1]
    codes = np.concatenate((codes, [none]))[following]
    begins = np.flatnonzero(np.concatenate(([True], codes[1:] != codes[:-1])))
    limits = np.iinfo(np.int64)
    edges = np.concatenate(([limits.min], inside))[begins]
    return np.concatenate((edges, [limits.max])), codes[begins]
