"""What the training thread was doing while time was lost: stack samples by the line that their instant stands on.

A sample is compared with the rank's partition at the same instant of the same clock. That is exact where the host is
late: an idle gap is by definition what the launching thread did while the device had nothing to do. Where the device is
busy the host runs ahead, and a sample tells what it did meanwhile, not why the device was busy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from lostflops.facts.source_code import PROGRAM, code_of
from lostflops.ledger.lines import LINES
from lostflops.ledger.partition import Partition, partition
from lostflops.ledger.record import Record, records
from lostflops.ledger.windows import window

if TYPE_CHECKING:
    from lostflops.ledger.scope import Scope
    from lostflops.store.run import Run

FEWEST: Final = 5
"""Below this many samples nothing is said about where time is lost."""


def samples_by_line(record: Record, made: Partition) -> dict[str, Counter[str]]:
    """How often each stack was read on each line; samples outside the window are on none."""
    times, stacks = record.samples.time, record.samples.stack
    if not times.size:
        return {}
    found = {line: Counter(stacks[made.lines[line].within(times, times + 1) > 0].tolist()) for line in LINES}
    return {line: counts for line, counts in found.items() if counts}


def sampled(
    run: Run, asked: Scope, progress: Callable[[int, int], None] | None = None
) -> Iterator[tuple[dict[str, int], dict[str, Counter[str]]]]:
    """Of each rank that has samples its lines, and its samples by line."""
    held = {rank for (rank,) in run.sql("select distinct rank from samples").fetchall()}
    ranks = [rank for rank in asked.ranks if rank in held]
    for done, record in enumerate(records(run, ranks)):
        if progress is not None:
            progress(done, len(ranks))
        made = partition(record, window(record, asked.kind, asked.steps))
        yield made.ns(), samples_by_line(record, made)


def places(samples: Counter[str]) -> Counter[str]:
    """Samples by the frame to look at: the innermost of the program's own code, else the innermost of all.

    >>> places(Counter({"main train.py:3;item torch/tensor.py:9": 2}))
    Counter({'main train.py:3': 2})
    """
    found: Counter[str] = Counter()
    for stack, count in samples.items():
        frames = stack.split(";")
        own = (frame for frame in reversed(frames) if code_of(frame) == PROGRAM)
        found[next(own, frames[-1])] += count
    return found
