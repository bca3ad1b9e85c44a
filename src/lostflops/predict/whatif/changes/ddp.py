"""What if DDP reduced the gradients that the program now reduces itself after the backward pass?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lostflops.predict.whatif.change import Change, Edited, Facts, Remembered
from lostflops.predict.whatif.graph_edits.manual_reductions import in_buckets
from lostflops.predict.whatif.graph_edits.rebucket import MIB
from lostflops.predict.whatif.graph_edits.values import number
from lostflops.predict.whatif.memory_edits.gradient_lifetimes import lasting

if TYPE_CHECKING:
    from lostflops.account.memory.blocks import RankMemory
    from lostflops.predict.graph.tasks import TaskGraph


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    return in_buckets(graph, facts, number(value, "ddp") * MIB)


def _remember(memory: RankMemory, value: str, facts: Facts) -> Remembered:
    del value, facts
    note = "Buckets hold gradients from step to step; memory for the program's own reductions is still counted."
    return Remembered(lasting(memory), 0.2, (note,))


CHANGE: Final = Change(
    name="ddp",
    form="ddp=MB",
    about="gradients that the program reduces itself are reduced in buckets of this size during backward, as DDP does",
    cost="gradients are already reduced when backward() returns: "
    "move code that changes them before reducing to after it",
    how=lambda value: (
        f"model = DistributedDataParallel(model, bucket_cap_mb={value}, gradient_as_bucket_view=True), and no "
        "all_reduce of gradients in the loop"
    ),
    apply=_apply,
    tried=("25",),
    remember=_remember,
)
