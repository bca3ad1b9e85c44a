"""Memory of gradients that live longer: over several microbatches, or from step to step."""

from __future__ import annotations

import numpy as np

from lostflops.account.ledger.phases import BACKWARD
from lostflops.account.memory.blocks import BEFORE, Flags, RankMemory
from lostflops.account.memory.owners import Owner
from lostflops.core.errors import NotApplicable
from lostflops.predict.whatif.memory_edits.editing import (
    New,
    add_blocks,
    change_lifetimes,
    select_owned_blocks,
    without,
)


def select_final_gradients(memory: RankMemory) -> Flags:
    """Select gradients that are there for the optimizer: those of the step before the window, and those that outlive
    the backward pass that made them. Others were only at the same address."""
    blocks = memory.blocks
    inside = (blocks.born > BEFORE) & (blocks.phase == BACKWARD) & (blocks.step >= 0)
    steps, place = np.unique(blocks.step, return_inverse=True)
    ends = np.full(steps.size, BEFORE)
    np.maximum.at(ends, place[inside], blocks.born[inside])
    found: Flags = select_owned_blocks(memory, Owner.GRADIENTS) & (
        (blocks.born == BEFORE) | (blocks.died > ends[place])
    )
    return found


def lasting(memory: RankMemory) -> RankMemory:
    """Keep the gradients of one step throughout the window, as buckets do."""
    blocks = memory.blocks
    grads = select_final_gradients(memory)
    steps = blocks.step[grads & (blocks.born > BEFORE)]
    if not steps.size:
        if grads.any():
            return memory
        raise NotApplicable("no gradients were identified in the memory of this run")
    if (steps < 0).any():
        raise NotApplicable("an earlier change shards the gradients, so those of one step cannot be identified")
    fullest = max(set(steps.tolist()), key=lambda step: int(blocks.bytes[grads & (blocks.step == step)].sum()))
    kept = grads & (blocks.step == fullest) & (blocks.born > BEFORE)
    only = without(memory, grads & ~kept)
    rows = np.flatnonzero(select_final_gradients(only))
    return change_lifetimes(only, rows, born=np.full(rows.size, BEFORE), died=np.full(rows.size, memory.time.size))


def accumulate_gradients(memory: RankMemory) -> RankMemory:
    """Return the memory of a microbatch after the first: sums are there throughout, and what a backward pass gives is
    added to them and freed."""
    blocks = memory.blocks
    fresh = np.flatnonzero(select_final_gradients(memory) & (blocks.born > BEFORE))
    added_up = New(blocks.born[fresh], blocks.born[fresh] + 1, blocks.bytes[fresh], Owner.TEMPORARIES)
    return add_blocks(lasting(memory), added_up)
