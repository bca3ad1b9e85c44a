"""Frees in the first step of blocks from before the window, inferred from similar blocks in the second step.

The collector checks at edges of phases whether these blocks are there, and the last output of a model is often freed
between two edges, just ahead of the peak. A program that repeats its allocations repeats its frees, and those of the
second step are recorded.
"""

from __future__ import annotations

import numpy as np

from lostflops.account.memory.blocks import BEFORE, Codes
from lostflops.account.memory.events import NOWHERE, MemoryEvents
from lostflops.account.memory.holdings import RankHoldings
from lostflops.account.memory.pairing import pair


def refine_ends(events: MemoryEvents, early: RankHoldings, end: Codes) -> Codes:
    """Return the event by which each block is gone.

    That is `end` at the latest, and not before others were seen to be gone while it was not. Of each size, as many must
    go in the first step as in the second of those that the first one left; both steps allocate the same up to then.
    """
    size = early.bytes
    steps = np.unique(events.step[events.step != NOWHERE])[:2]
    if steps.size < 2 or not size.size:
        return end
    grows = events.change > 0
    first, second = (np.flatnonzero(grows & (events.step == step)) for step in steps.tolist())
    shorter = min(first.size, second.size)
    differs = np.flatnonzero(events.change[first[:shorter]] != events.change[second[:shorter]])
    alike = int(differs[0]) if differs.size else shorter
    blocks = pair(events.address, events.change)
    of_first = blocks.rows((blocks.born != BEFORE) & blocks.freed & (events.step[blocks.born] == steps[0]))
    left = of_first.rows(events.step[of_first.died] == steps[1])
    ahead = np.searchsorted(second, left.died)
    closed = np.flatnonzero(events.step == steps[0])[-1] + 1
    found = end.copy()
    for each in np.unique(size[end <= closed]).tolist():
        going = np.flatnonzero((size == each) & (end <= closed))
        nth = np.sort(ahead[left.bytes == each])
        if nth.size == going.size and int(nth[-1]) < alike:
            going = going[np.argsort(end[going], kind="stable")]
            found[going] = first[nth]
    looked = np.unique(early.gone)
    last_there = np.append(np.iinfo(np.int64).min, looked)[np.searchsorted(looked, early.gone)]
    return np.minimum(np.maximum(found, np.searchsorted(events.time, last_there)), end)
