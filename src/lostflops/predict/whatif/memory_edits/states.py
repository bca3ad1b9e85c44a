"""What an optimizer that updates in one pass, or keeps its states in 8 bits, holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from lostflops.account.memory.blocks import RankMemory
from lostflops.account.memory.owners import Owner
from lostflops.core.errors import NotApplicable
from lostflops.predict.whatif.change import HeldParameter
from lostflops.predict.whatif.memory_edits.editing import resize_blocks, select_owned_blocks, without
from lostflops.predict.whatif.memory_edits.sharding import update

_FEWEST: Final = 4096
"""Elements from which on bitsandbytes keeps states in 8 bits (`min_8bit_size`, bitsandbytes/optim/optimizer.py); block-
wise as Dettmers et al., 8-bit Optimizers via Block-wise Quantization, ICLR 2022."""
_BLOCK: Final = 256
"""Elements that share a scale of 4 bytes (`blocks = n // 256` there, since bitsandbytes 0.44, pull request 1365); 2048
in older versions, which is 1.4% less of the states."""
_SCALE: Final = 4
_ROUNDED: Final = 512
"""Of which CUDA's allocator gives out multiples."""
_ALIKE: Final = 0.9
"""Of the bytes of states that must be as large as a parameter, to have its dtype."""


def one_pass(memory: RankMemory) -> RankMemory:
    """Without what updates op by op allocate on the way."""
    return without(memory, update(memory))


def in_8_bits(memory: RankMemory, held: Sequence[HeldParameter], recorded: RankMemory) -> RankMemory:
    """Each state of as many elements as its parameter, a byte for each and the scales of its blocks. `recorded` is the
    memory before other changes, in which states are as large as their parameters if they have their dtype."""
    states = np.flatnonzero(select_owned_blocks(memory, Owner.OPTIMIZER))
    if not states.size:
        raise NotApplicable("the optimizer keeps no state, or it was not recorded")
    sizes = {one.element for one in held}
    if len(sizes) != 1:
        raise NotApplicable("the dtype of optimizer states is unknown: parameters have no recorded dtype, or several")
    if not _are_as_parameters(recorded, held):
        raise NotApplicable(
            "the dtype of optimizer states is unknown: they are not as large as parameters, or already in 8 bits"
        )
    elements = memory.blocks.bytes[states] // sizes.pop()
    small = elements + -(-elements // _BLOCK) * _SCALE
    changed = resize_blocks(memory, states, np.where(elements >= _FEWEST, small, memory.blocks.bytes[states]))
    return one_pass(changed)


def _are_as_parameters(memory: RankMemory, held: Sequence[HeldParameter]) -> bool:
    size = memory.blocks.bytes[select_owned_blocks(memory, Owner.OPTIMIZER)]
    own = np.array([one.bytes for one in held])
    alike = np.isin(size, np.concatenate((own, -(-own // _ROUNDED) * _ROUNDED)))
    return bool(size[alike].sum() >= _ALIKE * size.sum())
