"""Bytes of parameters and optimizer states that one of several ranks holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from lostflops.account.ledger.phases import OPTIMIZER
from lostflops.account.memory.blocks import Flags, RankMemory
from lostflops.account.memory.owners import Owner
from lostflops.core.errors import NotApplicable
from lostflops.predict.whatif.change import Facts, HeldParameter
from lostflops.predict.whatif.memory_edits.editing import resize_blocks, scale_blocks, select_owned_blocks

_SHARDED: Final = 0.75
"""Parameters are sharded if a rank holds less than this part of them."""
_AT_ONCE: Final = "_foreach"
_SCALAR: Final = 64
"""A state of at most this many bytes is a single number, such as a count of steps: it keeps its size when its tensor is
cut."""


def replicas(facts: Facts) -> int:
    if facts.replicas is None:
        raise NotApplicable(
            "how many ranks hold the same parameters is unknown, or an earlier change shards them: give world_size "
            "first"
        )
    return facts.replicas


def require_trained_parameters(facts: Facts) -> tuple[HeldParameter, ...]:
    found = tuple(one for one in facts.held if one.trainable and one.whole)
    if not found:
        raise NotApplicable("parameter shapes were not recorded")
    return found


def is_sharded(held: Sequence[HeldParameter]) -> bool:
    return sum(one.bytes for one in held) < _SHARDED * sum(one.whole for one in held)


def shard(one: HeldParameter, ranks: int) -> int:
    """Return the bytes of the first rank's rows, as `fully_shard` cuts them (torch.chunk along the first dimension,
    padded).

    >>> shard(HeldParameter("w", 4000, 4000, 10, 4, True, None), 4)
    1200
    """
    return -(-one.rows // ranks) * (one.whole // one.rows)


def shards(held: Sequence[HeldParameter], ranks: int) -> int:
    return sum(shard(one, ranks) for one in held)


def parts(held: Sequence[HeldParameter], ranks: int) -> list[tuple[HeldParameter, ...]]:
    """Return the parameters that each rank updates, as ZeroRedundancyOptimizer distributes whole parameters: the
    largest first, each to the rank that has least (torch/distributed/optim/zero_redundancy_optimizer.py,
    `_partition_parameters`).

    >>> sizes = [HeldParameter(str(size), size, size, size, 4, True, None) for size in (40, 90, 30, 20)]
    >>> [[one.whole for one in part] for part in parts(sizes, 2)]
    [[90], [40, 30, 20]]
    """
    found: list[list[HeldParameter]] = [[] for _ in range(ranks)]
    sizes = [0] * ranks
    for one in sorted(held, key=lambda one: -(one.whole // one.element)):
        least = sizes.index(min(sizes))
        found[least].append(one)
        sizes[least] += one.whole // one.element
    return [tuple(part) for part in found]


def fullest(held: Sequence[HeldParameter], ranks: int) -> tuple[HeldParameter, ...]:
    return max(parts(held, ranks), key=lambda part: sum(one.whole for one in part))


def with_states(memory: RankMemory, factor: float, share: float) -> RankMemory:
    """Scale the optimizer's states, and what its update allocates for all tensors at once, by `factor`. `share` scales
    the number of tensors: there are as many single numbers, such as counts of steps, as there are tensors."""
    blocks = memory.blocks
    states = select_owned_blocks(memory, Owner.OPTIMIZER)
    numbers = states & (blocks.bytes <= _SCALAR)
    changed = scale_blocks(memory, states & ~numbers, factor)
    if share < 1:
        changed = _fewer(changed, share)
    return scale_blocks(changed, update(changed, _AT_ONCE), factor)


def _fewer(memory: RankMemory, share: float) -> RankMemory:
    """Keep the first `share` of the single numbers, and remove the others."""
    numbers = np.flatnonzero(select_owned_blocks(memory, Owner.OPTIMIZER) & (memory.blocks.bytes <= _SCALAR))
    return resize_blocks(memory, numbers[round(numbers.size * share) :], 0)


def update(memory: RankMemory, called: str = "") -> Flags:
    """Select what the optimizer's step allocates and frees, by ops with `called` in their names."""
    named = np.array([called in text for text in memory.texts], np.bool_)
    found: Flags = (
        select_owned_blocks(memory, Owner.TEMPORARIES) & (memory.blocks.phase == OPTIMIZER) & named[memory.blocks.op]
    )
    return found


def one_by_one(memory: RankMemory) -> Flags:
    """Select what updates allocate for one tensor after the other; `with_states` leaves it as it is."""
    found: Flags = update(memory) & ~update(memory, _AT_ONCE)
    return found


def is_partitioned(memory: RankMemory, held: Sequence[HeldParameter]) -> bool:
    """Return whether the rank has states of only some trained modules, as ZeroRedundancyOptimizer distributes them."""
    states = {
        memory.texts[code] for code in memory.blocks.module[select_owned_blocks(memory, Owner.OPTIMIZER)].tolist()
    } - {""}
    return bool(states) and not {one.name.rpartition(".")[0] for one in held} <= states
