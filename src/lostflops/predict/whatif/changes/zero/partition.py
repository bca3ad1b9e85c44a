"""Memory of a rank with ZeroRedundancyOptimizer, which gives each whole parameter to one rank that updates it.

Updates op by op allocate for one parameter at a time; the result of the last op stays until the next parameter's exists
(`denom` in torch/optim/adam.py, `_single_tensor_adam`). A rank's parameters come largest first, so two large ones
follow each other where the model has a bias between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from lostflops.account.memory.blocks import RankMemory
from lostflops.account.memory.owners import Owner
from lostflops.predict.whatif.change import HeldParameter
from lostflops.predict.whatif.memory_edits.editing import New, add_blocks
from lostflops.predict.whatif.memory_edits.sharding import one_by_one, parts, with_states

_TRIED: Final = 4
"""Number of ranks with the most state that are tried; one of them has the highest peak."""


def partition_states(
    memory: RankMemory, held: Sequence[HeldParameter], ranks: int
) -> tuple[RankMemory, tuple[HeldParameter, ...]]:
    """Return the memory of the rank with the highest peak, and the parameters it updates."""
    whole = sum(one.whole for one in held)
    most = sorted(parts(held, ranks), key=lambda part: -sum(one.whole for one in part))[:_TRIED]
    found = []
    for part in most:
        share = sum(one.whole for one in part) / whole
        changed = with_states(_in_order(memory, held, part), share, len(part) / len(held))
        found.append((changed, part))
    return max(found, key=lambda one: one[0].peak_bytes)


def _in_order(memory: RankMemory, held: Sequence[HeldParameter], part: Sequence[HeldParameter]) -> RankMemory:
    """Add the extra bytes that updates need at most if parameters come in another order."""
    blocks = memory.blocks
    rows = np.flatnonzero(one_by_one(memory))
    largest = max(one.whole for one in held)
    own = rows[blocks.bytes[rows] == largest]
    if not own.size:
        return memory
    each = max(int(((blocks.born[own] <= at) & (blocks.died[own] > at)).sum()) for at in blocks.born[own].tolist())
    others = blocks.born[rows[blocks.bytes[rows] != largest]]
    stays = bool(((others[:, None] > blocks.born[own]) & (others[:, None] < blocks.died[own])).any())
    before = _most([one.whole for one in held], each, stays)
    after = _most([one.whole for one in part], each, stays)
    if after <= before:
        return memory
    at = np.array([int(blocks.born[own[blocks.step[own] == step]].max()) for step in np.unique(blocks.step[own])])
    return add_blocks(memory, New(at, at + 1, np.full(at.size, after - before), Owner.TEMPORARIES))


def _most(sizes: Sequence[int], each: int, stays: bool) -> int:
    """Return the most bytes that updates allocate: `each` times a parameter, plus the previous parameter if its last
    result stays.

    >>> _most([30, 1, 20], 2, True), _most([30, 20, 1], 2, True), _most([30, 20, 1], 2, False)
    (60, 70, 60)
    """
    return max(each * size + (stays and earlier) for earlier, size in zip((0, *sizes), sizes, strict=False))
