"""What if DDP reduced the gradients that the program now reduces itself after the backward pass?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lostflops.predict.change import Change, Edited, Facts, Remembered
from lostflops.predict.edits.by_hand import in_buckets
from lostflops.predict.edits.rebucket import MIB
from lostflops.predict.edits.values import number
from lostflops.predict.remembered.accumulated import lasting

if TYPE_CHECKING:
    from lostflops.graph.tasks import TaskGraph
    from lostflops.memory.blocks import Memory


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    return in_buckets(graph, facts, number(value, "ddp") * MIB)


def _remember(memory: Memory, value: str, facts: Facts) -> Remembered:
    del value, facts
    note = "Buckets hold gradients from step to step; memory for the program's own reductions is still counted."
    return Remembered(lasting(memory), 0.2, (note,))


CHANGE: Final = Change(
    "ddp",
    "ddp=MB",
    "gradients that the program reduces itself are reduced in buckets of this size during backward, as DDP does",
    "gradients are already reduced when backward() returns: move code that changes them before reducing to after it",
    lambda value: (
        f"model = DistributedDataParallel(model, bucket_cap_mb={value}, gradient_as_bucket_view=True), and no "
        "all_reduce of gradients in the loop"
    ),
    _apply,
    ("25",),
    remember=_remember,
)
