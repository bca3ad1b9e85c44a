"""Buffers of communication on a CPU whose free was not recorded.

Threads of gloo that are the last to hold a tensor free it, and the profiler does not see them. A buffer is assumed to
live as long (by the median) as freed buffers of its size and phase, of the same site if there are any. If there are
none and a later step allocates the same size, it is gone when the next step first allocates. If no later step does, it
may be meant to stay, and is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from lostflops.account.memory.blocks import BEFORE, Blocks, Codes, Flags, RankMemory
from lostflops.account.memory.owners import CODE, Owner
from lostflops.core.units import format_bytes, pluralise


def with_unseen_frees(memory: RankMemory) -> RankMemory:
    blocks, events = memory.blocks, memory.time.size
    communicates = (blocks.born > BEFORE) & (blocks.step >= 0) & (blocks.owner == CODE[Owner.COMMUNICATION])
    left = np.flatnonzero(communicates & (blocks.died == events))
    if memory.device != "cpu" or not left.size:
        return memory
    until = np.minimum(np.array(list(_ends(blocks, communicates, left, events)), np.int64), events)
    rows, until = left[until < events], until[until < events]
    if not rows.size:
        return memory
    died, stop, freed = blocks.died.copy(), blocks.stop.copy(), np.zeros(events, np.int64)
    died[rows], stop[rows] = until, memory.time[until]
    np.add.at(freed, until, blocks.bytes[rows])
    which = f"{pluralise(rows.size, 'communication buffer')} ({format_bytes(int(blocks.bytes[rows].sum()))})"
    return replace(
        memory,
        total=memory.total - freed.cumsum(),
        blocks=replace(blocks, died=died, stop=stop),
        notes=(*memory.notes, f"The free of {which} was not recorded: assumed to live as long as similar buffers."),
    )


def _ends(blocks: Blocks, communicates: Flags, left: Codes, events: int) -> Iterator[int]:
    """Yield the event at which each of these is taken to be freed; the number of events if it stays."""
    freed = np.flatnonzero(communicates & (blocks.died < events))
    steps = blocks.step[communicates]
    for row in left.tolist():
        same = freed[(blocks.bytes[freed] == blocks.bytes[row]) & (blocks.phase[freed] == blocks.phase[row])]
        site = same[(blocks.op[same] == blocks.op[row]) & (blocks.module[same] == blocks.module[row])]
        twins = site if site.size else same
        if twins.size:
            yield int(blocks.born[row] + np.median(blocks.died[twins] - blocks.born[twins]))
        elif (steps[blocks.bytes[communicates] == blocks.bytes[row]] > blocks.step[row]).any():
            yield int(blocks.born[(blocks.born > BEFORE) & (blocks.step > blocks.step[row])].min())
        else:
            yield events
