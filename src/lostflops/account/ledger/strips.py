"""The line with most of each bin of a rank's time: the ledger at the resolution of a screen."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.partition import Partition, partition
from lostflops.account.ledger.record import Record
from lostflops.account.ledger.windows import LedgerWindow, WindowKind, window
from lostflops.store.intervals import Intervals, Ns


def whole(record: Record) -> Partition:
    """Partition all that the rank recorded, also outside its steps: on steps it is the same as their partition."""
    recorded = window(record, WindowKind.TRACE).inside
    steps = window(record, WindowKind.STEPS).inside if record.steps.number.size else Intervals.empty()
    both = recorded | steps
    return partition(record, LedgerWindow(WindowKind.TRACE, (), both.start, both.stop))


def edges(start: int, stop: int, bins: int) -> Ns:
    """Return where bins begin and end: as equal as whole ns allow.

    >>> edges(10, 20, 4).tolist()
    [10, 12, 15, 17, 20]
    """
    width, rest = divmod(stop - start, bins)
    place = np.arange(bins + 1, dtype=np.int64)
    return start + place * width + place * rest // bins


def bin_lines(lines: Mapping[str, Intervals], at: Ns) -> npt.NDArray[np.uint8]:
    """Return the place in LINES of the line with most of each bin, from 1; 0 if most of the bin is on no line.

    Of equals the earlier line counts, and any line comes before none.

    >>> lines = {"compute": Intervals.of([0], [12]), "copy": Intervals.of([12], [20])}
    >>> bin_lines(lines, np.array([0, 10, 20, 30])).tolist()
    [1, 5, 0]
    """
    start, stop = at[:-1], at[1:]
    best, most, known = (np.zeros(start.size, np.int64) for _ in range(3))
    for code, line in enumerate(LINES, 1):
        if line in lines and len(lines[line]):
            share = lines[line].within(start, stop)
            known += share
            best = np.where(share > most, code, best)
            most = np.maximum(most, share)
    return np.where(stop - start - known > most, 0, best).astype(np.uint8)
