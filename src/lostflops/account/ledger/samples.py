"""Stack samples of the training thread by line of the ledger: what did it do while time was lost?

A sample is compared with the rank's partition at the same instant of the same clock. That is exact if the host is late:
an idle gap is by definition what the launching thread did while the device had nothing to do. If the device is busy,
the host runs ahead, and a sample shows what it did meanwhile, not why the device was busy.

Samples do not come evenly: a sampler waits for the interpreter's lock, so a call that holds it for long is seen once,
when it returns. A sample therefore represents all time of its line since the previous sample on that line. The first
and the last also represent the time before and after them. So the time of the stacks of a line sums to the line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from lostflops.account.facts.source_code import PROGRAM, code_of
from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.partition import partition
from lostflops.account.ledger.record import Samples, records
from lostflops.account.ledger.windows import window
from lostflops.store.intervals import Intervals

if TYPE_CHECKING:
    from lostflops.account.ledger.scope import Scope
    from lostflops.store.run import Run

LineStacks = dict[str, Counter[str]]
"""Counts or times by line and stack."""
FEWEST: Final = 5
"""Below this many samples nothing is said about where time is lost."""


def samples_by_line(samples: Samples, lines: Mapping[str, Intervals]) -> tuple[LineStacks, LineStacks]:
    """Return how often each stack was read on each line, and the time that this represents.

    A sample outside the accounted window has no line.
    """
    counts: LineStacks = {}
    times: LineStacks = {}
    order = np.argsort(samples.time, kind="stable")
    read, stacks = samples.time[order], samples.stack[order]
    limits = np.iinfo(np.int64)
    for line in LINES if read.size else ():
        span = lines[line]
        own = np.flatnonzero(span.within(read, read + 1) > 0)
        if own.size:
            edges = np.concatenate(([limits.min], read[own[:-1]], [limits.max]))
            counts[line], times[line] = Counter(), Counter()
            for stack, ns in zip(stacks[own].tolist(), span.within(edges[:-1], edges[1:]).tolist(), strict=True):
                counts[line][stack] += 1
                times[line][stack] += ns
    return counts, times


class Sampled(NamedTuple):
    """Lines of one rank, and the stacks that were read on each."""

    lines: dict[str, int]
    counts: LineStacks
    """How often each stack was read."""
    times: LineStacks
    """Time that each stack represents, in ns."""


def read_samples(run: Run, asked: Scope, progress: Callable[[int, int], None] | None = None) -> Iterator[Sampled]:
    """Yield the ranks that have samples."""
    held = {rank for (rank,) in run.rows("select distinct rank from samples")}
    ranks = [rank for rank in asked.ranks if rank in held]
    for done, record in enumerate(records(run, ranks)):
        if progress is not None:
            progress(done, len(ranks))
        made = partition(record, window(record, asked.kind, asked.steps))
        yield Sampled(made.ns(), *samples_by_line(record.samples, made.lines))


def places(stacks: Counter[str]) -> Counter[str]:
    """Sum samples or time by the frame to look at: the innermost of the program's own code, else the innermost of all.

    >>> places(Counter({"main train.py:3;item torch/tensor.py:9": 2}))
    Counter({'main train.py:3': 2})
    """
    found: Counter[str] = Counter()
    for stack, count in stacks.items():
        frames = stack.split(";")
        own = (frame for frame in reversed(frames) if code_of(frame) == PROGRAM)
        found[next(own, frames[-1])] += count
    return found
