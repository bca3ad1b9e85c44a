"""Blocks whose free was not recorded: they are assumed to live at most as long as others of their place.

On a CPU, a thread that the profiler does not follow, such as a gloo thread that ends a collective, frees without an
event. Such a block would be counted until its address is given out again, or for good.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lostflops.account.memory.attribution import number_sites
from lostflops.account.memory.blocks import BEFORE
from lostflops.account.memory.moments import Moments
from lostflops.account.memory.tally import Tally
from lostflops.core.units import format_bytes


def with_likely_ends(counted: Tally, moments: Moments) -> Tally:
    """End blocks whose free was not recorded, when other blocks of their place would have ended.

    These are blocks that must have been freed, as their address is given out again, and blocks of communication.
    """
    pairs, count = counted.pairs, len(counted.events)
    inside, at = pairs.born != BEFORE, np.maximum(pairs.born, 0)
    open_ended = inside & ~pairs.freed & ((pairs.died < count) | moments.sites.communicates[at])
    if not open_ended.any():
        return counted
    site = number_sites(moments.sites.communicates[at].astype(np.int64), moments.sites.op[at], pairs.bytes)
    longest = np.zeros(int(site.max()) + 1, np.int64)
    whole = inside & pairs.freed
    np.maximum.at(longest, site[whole], (pairs.died - pairs.born)[whole])
    likely = np.minimum(pairs.died, pairs.born + longest[site])
    ends = np.where(open_ended & (longest[site] > 0), likely, pairs.died)
    pairs = replace(pairs, died=ends)
    lost = int(np.count_nonzero(open_ended & (ends < count)))
    note = f"{lost} blocks were freed without an event: we assume that they lived at most as long as other blocks from "
    note += "the same place, else until their address was reused"
    most = int(counted.total.max())
    note += f". If they all lived until then, the peak would be {format_bytes(most)}."
    notes = (*counted.notes, note) if lost else counted.notes
    return replace(counted, pairs=pairs, total=pairs.sum_held_bytes(count)[1:], notes=notes)
