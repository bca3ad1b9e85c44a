"""Flame graph of a page: all lines of the ledger, limited to the stacks that take the most time."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from lostflops.account.ledger.lines import LINES
from lostflops.core.results import Result, Stacks
from lostflops.core.units import pluralise
from lostflops.explain.analyze.flame import flame as asked

if TYPE_CHECKING:
    from lostflops.store.run import Run

MOST_FRAMES: Final = 300_000
"""All stacks together have at most this many frames: a few seconds of work, and a few hundred kB of the file."""


def flame(run: Run) -> Result:
    found = asked(run, lines=LINES)
    drawn = tuple(limit_stacks(block) for block in found.more if isinstance(block, Stacks))
    return replace(found, blocks=(*drawn, *found.blocks) if found.blocks else (), more=())


def limit_stacks(stacks: Stacks, most: int = MOST_FRAMES) -> Stacks:
    """Keep the stacks that take the most time; the others of a line become one stack that says how many they are.

    >>> items = ((("idle.python", "a"), 3, 30), (("idle.python", "b"), 1, 10), (("idle.python", "c"), 1, 5))
    >>> limit_stacks(Stacks("stacks", "", items, {}), 3).items[1]
    (('idle.python', '2 shorter stacks'), 2, 15)
    """
    ordered = sorted(stacks.items, key=lambda item: -item[2])
    kept = bisect_right(list(accumulate(len(frames) for frames, _, _ in ordered)), most)
    rest: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for frames, samples, ns in ordered[kept:]:
        rest[frames[0]].append((samples, ns))
    merged = tuple(
        (
            (line, pluralise(len(items), "shorter stack")),
            sum(samples for samples, _ in items),
            sum(ns for _, ns in items),
        )
        for line, items in rest.items()
    )
    return replace(stacks, items=(*ordered[:kept], *merged))
