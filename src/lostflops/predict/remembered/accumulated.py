"""What gradients hold where they last longer: over several microbatches, or from step to step."""

from __future__ import annotations

import numpy as np

from lostflops.ledger.phases import BACKWARD
from lostflops.memory.blocks import BEFORE, Flags, Memory
from lostflops.memory.owners import Owner
from lostflops.predict.change import NotApplicable
from lostflops.predict.remembered.editing import New, added, owned, relived, without


def reduced(memory: Memory) -> Flags:
    """Gradients that are there for the optimizer: those of the step before the window, and what outlives the backward
    pass that made it. What does not was only at the same address."""
    blocks = memory.blocks
    inside = (blocks.born > BEFORE) & (blocks.phase == BACKWARD) & (blocks.step >= 0)
    ends = np.full(int(blocks.step.max(initial=0)) + 2, BEFORE)
    np.maximum.at(ends, blocks.step[inside], blocks.born[inside])
    found: Flags = owned(memory, Owner.GRADIENTS) & ((blocks.born == BEFORE) | (blocks.died > ends[blocks.step]))
    return found


def lasting(memory: Memory) -> Memory:
    """Gradients of one step are there throughout the window, as where buckets hold them."""
    blocks = memory.blocks
    grads = reduced(memory)
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
    rows = np.flatnonzero(reduced(only))
    return relived(only, rows, born=np.full(rows.size, BEFORE), died=np.full(rows.size, memory.time.size))


def accumulated(memory: Memory) -> Memory:
    """As in a microbatch behind the first: sums are there throughout, and what a backward pass gives is added to them
    and freed."""
    blocks = memory.blocks
    fresh = np.flatnonzero(reduced(memory) & (blocks.born > BEFORE))
    added_up = New(blocks.born[fresh], blocks.born[fresh] + 1, blocks.bytes[fresh], Owner.TEMPORARIES)
    return added(lasting(memory), added_up)
