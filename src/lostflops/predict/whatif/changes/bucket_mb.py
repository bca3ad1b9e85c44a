"""What if gradients were reduced in buckets of another size?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lostflops.predict.whatif.change import Change, Edited, Facts
from lostflops.predict.whatif.graph_edits.rebucket import MIB, rebucket_gradients
from lostflops.predict.whatif.graph_edits.values import number
from lostflops.predict.whatif.memory_edits.unchanged_memory import keep_memory_unchanged

if TYPE_CHECKING:
    from lostflops.predict.graph.tasks import TaskGraph


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    size = number(value, "bucket_mb") * MIB
    return rebucket_gradients(graph, facts, lambda _: (size, size))


CHANGE: Final = Change(
    name="bucket_mb",
    form="bucket_mb=MB",
    about="gradients are reduced in buckets of this size, including the first, as DDP does when bucket_cap_mb is set",
    cost="larger buckets start later and hold more memory; smaller ones pay more latency",
    how=lambda value: f"DistributedDataParallel(model, bucket_cap_mb={value})",
    apply=_apply,
    tried=("5", "50", "100"),
    remember=keep_memory_unchanged("The buckets together hold all gradients, whatever their size."),
)
