"""What if batches were larger or smaller?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.ledger.phases import BACKWARD, FORWARD, OPTIMIZER
from lostflops.account.memory.blocks import BEFORE
from lostflops.account.memory.owners import CODE, Owner
from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.editing import retime_graph, scale_rows
from lostflops.predict.graph.tasks import TaskKind
from lostflops.predict.whatif.change import Change, Edited, Facts, Remembered
from lostflops.predict.whatif.graph_edits.values import number
from lostflops.predict.whatif.memory_edits import editing

if TYPE_CHECKING:
    from lostflops.account.memory.blocks import Flags, RankMemory
    from lostflops.predict.graph.tasks import TaskGraph

_TIME_DOUBT: Final = 0.5
"""A kernel that does not fill the device takes as long for twice the batch, and one run does not show which kernels
do."""
_MEMORY_DOUBT: Final = 0.1
"""Some of what is kept for backward does not grow with the batch, such as casts of weights, and some of what is not
kept does."""
_MOST: Final = 1_000_000


def _factor(value: str) -> float:
    factor = number(value.removesuffix("x"), "batch")
    if factor == 1 or not 1 / _MOST <= factor <= _MOST:
        raise NotApplicable(f"batch={value} is the recorded batch or out of range: give a factor such as 2")
    return factor


def _apply(graph: TaskGraph, value: str, _facts: Facts) -> Edited:
    factor, tasks = _factor(value), graph.tasks
    computes = (tasks.kind == TaskKind.KERNEL) & (tasks.meeting < 0) & np.isin(tasks.phase, (FORWARD, BACKWARD))
    if not computes.any():
        raise NotApplicable("forward and backward passes cannot be distinguished in this run")
    notes = (
        (
            f"Forward and backward compute takes {factor:g}x as long; optimizer, communication and host time stay "
            "the same."
        ),
        "One run does not show how much of a step grows with the batch: lostflops fit measures it at three sizes.",
        f"A step processes {factor:g}x as many samples.",
    )
    return Edited(
        graph=retime_graph(graph, duration=scale_rows(tasks.duration, computes, factor)), doubt=_TIME_DOUBT, notes=notes
    )


def _remember(memory: RankMemory, value: str, facts: Facts) -> Remembered:
    factor = _factor(value)
    rows, unsure = _of_samples(memory), _may_be_gradients(memory, facts)
    if not rows.any():
        raise NotApplicable("no activations, temporaries or batches were identified in the memory of this run")
    every, fewer = editing.scale_blocks(memory, rows, factor), editing.scale_blocks(memory, rows & ~unsure, factor)
    found = fewer if _are_gradients_kept(memory) else every
    moved = abs(found.peak_bytes - memory.peak_bytes)
    doubt = max(_MEMORY_DOUBT, abs(every.peak_bytes - fewer.peak_bytes) / moved if moved else 0.0)
    notes = (
        (
            f"Activations, batches and temporaries of forward and backward take {factor:g}x the memory; the "
            "optimizer's temporaries and new gradients that are added to existing ones stay the same."
        ),
    )
    return Remembered(found, doubt, notes)


def _of_samples(memory: RankMemory) -> Flags:
    """Select blocks that grow with the batch."""
    blocks = memory.blocks
    passing = (blocks.owner == CODE[Owner.TEMPORARIES]) & (blocks.phase != OPTIMIZER)
    found: Flags = passing | np.isin(blocks.owner, [CODE[Owner.ACTIVATIONS], CODE[Owner.BATCHES]])
    return found


def _may_be_gradients(memory: RankMemory, facts: Facts) -> Flags:
    """Select blocks that backward allocates and frees and that are exactly as large as a parameter: a gradient before
    it is added to the existing one or, by chance, the gradient of an activation."""
    blocks = memory.blocks
    passing = (blocks.owner == CODE[Owner.TEMPORARIES]) & (blocks.phase == BACKWARD)
    found: Flags = passing & np.isin(blocks.bytes, [size for _, size, _ in facts.parameters])
    return found


def _are_gradients_kept(memory: RankMemory) -> bool:
    """Return whether backward passes add to existing gradients, rather than leaving new ones."""
    blocks = memory.blocks
    return not ((blocks.owner == CODE[Owner.GRADIENTS]) & (blocks.born > BEFORE)).any()


CHANGE: Final = Change(
    name="batch",
    form="batch=FACTOR",
    about="batches hold FACTOR times as many samples",
    cost="another batch size trains differently: adjust learning rate and schedule",
    how=lambda value: f"multiply the loader's batch size by {value.removesuffix('x')}",
    apply=_apply,
    remember=_remember,
)
