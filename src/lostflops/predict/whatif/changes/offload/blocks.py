"""What `offload` moves to the host: blocks of a rank's memory, in units, and the memory without them.

Activations are those that live when the forward pass of a step ends. A unit is what one layer keeps. The last two units
stay on the device: their backward pass follows at once. A unit leaves before the forward of the second unit after it,
and is back before the backward of the unit after it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from lostflops.account.ledger.phases import BACKWARD, FORWARD
from lostflops.account.memory.blocks import Codes, Flags, RankMemory
from lostflops.account.memory.owners import Owner
from lostflops.core.errors import NotApplicable
from lostflops.predict.whatif.memory_edits.editing import (
    New,
    add_blocks,
    change_lifetimes,
    select_owned_blocks,
    without,
)

STAY: Final = 2
"""Units at the end of the forward pass that stay on the device, and units that are on their way at once."""
SLICES: Final = 16
"""Parts in which optimizer states come to the device and leave it, two of them at a time."""
_FEWEST: Final = 1024
"""Blocks of fewer bytes stay."""
_LAYER: Final = re.compile(r"(?:.*?\.)?\d+(?=\.|$)")
_SEVERAL: Final = (
    "steps have several backward passes, or forward and backward overlap, so when activations are needed is unknown"
)


@dataclass(frozen=True, slots=True)
class StepUnits:
    """Activations that one step keeps, as rows of blocks by unit, in the order of the forward pass."""

    units: tuple[Codes, ...]
    sizes: tuple[int, ...]
    """Bytes of each unit."""

    @property
    def moved(self) -> int:
        """Number of units that are offloaded."""
        return max(len(self.units) - STAY, 0)


def require_device(memory: RankMemory) -> None:
    if memory.device == "cpu":
        raise NotApplicable("the model is in the memory of the host already: no accelerator's memory was recorded")


def kept_activations(memory: RankMemory) -> list[StepUnits]:
    """Return what each step keeps. Raise `NotApplicable` if no step keeps anything, or if steps have several passes."""
    blocks = memory.blocks
    owned = select_owned_blocks(memory, Owner.ACTIVATIONS) & (blocks.step >= 0) & (blocks.bytes >= _FEWEST)
    steps = [_step(memory, owned & (blocks.step == step)) for step in np.unique(blocks.step[owned]).tolist()]
    steps = [step for step in steps if step.moved]
    if not steps:
        raise NotApplicable(f"no step keeps activations of more than {STAY} layers")
    return steps


def _step(memory: RankMemory, own: Flags) -> StepUnits:
    blocks = memory.blocks
    forward = np.flatnonzero(own & (blocks.phase == FORWARD))
    if not forward.size:
        return StepUnits((), ())
    turn = int(blocks.born[forward].max())
    step = int(blocks.step[forward[0]])
    backward = blocks.born[(blocks.step == step) & (blocks.phase == BACKWARD)]
    if backward.size and int(backward.min()) < turn:
        raise NotApplicable(_SEVERAL)
    rows = forward[blocks.died[forward] > turn]
    rows = rows[np.argsort(blocks.born[rows], kind="stable")]
    layers = [_layer(memory.texts[code]) for code in blocks.module[rows].tolist()]
    edges = [0, *(at for at in range(1, rows.size) if layers[at] != layers[at - 1]), rows.size]
    units = tuple(rows[first:last] for first, last in pairwise(edges) if last > first)
    return StepUnits(units, tuple(int(blocks.bytes[unit].sum()) for unit in units))


def _layer(module: str) -> str:
    """Return the outermost numbered module.

    >>> _layer("model.layers.3.mlp.1"), _layer("3.linear"), _layer("embedding")
    ('model.layers.3', '3', 'embedding')
    """
    layer = _LAYER.match(module)
    return layer[0] if layer else module


def without_activations(memory: RankMemory) -> RankMemory:
    """Return the memory in which units are away between their forward and their backward pass."""
    blocks = memory.blocks
    rows, left, back = list[Codes](), list[Codes](), list[Codes]()
    for step in kept_activations(memory):
        for at in range(step.moved):
            unit = step.units[at]
            gone = int(blocks.born[step.units[at + STAY]].min())
            again = int(blocks.died[step.units[at + 1]].min()) - 1
            away = unit[(blocks.died[unit] > again)] if again > gone else unit[:0]
            rows.append(away)
            left.append(np.full(away.size, gone))
            back.append(np.full(away.size, again))
    moved, gone_at, back_at = (np.concatenate(parts) for parts in (rows, left, back))
    new = New(back_at, blocks.died[moved], blocks.bytes[moved], Owner.ACTIVATIONS)
    return add_blocks(change_lifetimes(memory, moved, died=gone_at), new)


def state_bytes(memory: RankMemory) -> int:
    size = int(memory.blocks.bytes[_states(memory)].sum())
    if not size:
        raise NotApplicable("the optimizer keeps no state on the device, or it was not recorded")
    return size


def without_states(memory: RankMemory) -> RankMemory:
    """Return the memory without optimizer states, but with a buffer for two slices of them."""
    blocks, states = memory.blocks, _states(memory)
    size = -(-state_bytes(memory) * STAY // SLICES)
    born, died = (np.array([edge]) for edge in (int(blocks.born[states].min()), memory.time.size))
    return add_blocks(without(memory, states), New(born, died, np.array([size]), Owner.OPTIMIZER))


def _states(memory: RankMemory) -> Flags:
    states: Flags = select_owned_blocks(memory, Owner.OPTIMIZER) & (memory.blocks.bytes >= _FEWEST)
    return states


def typical_sizes(steps: Sequence[StepUnits]) -> tuple[int, ...]:
    """Return the bytes of the units of the step that keeps most."""
    return max((step.sizes for step in steps), key=sum)
