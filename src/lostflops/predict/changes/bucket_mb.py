"""What if gradients were reduced in buckets of another size?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lostflops.predict.change import Change, Edited, Facts
from lostflops.predict.edits.rebucket import MIB, rebucketed
from lostflops.predict.edits.values import number
from lostflops.predict.remembered.untouched import untouched

if TYPE_CHECKING:
    from lostflops.graph.tasks import TaskGraph


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    size = number(value, "bucket_mb") * MIB
    return rebucketed(graph, facts, lambda _: (size, size))


CHANGE: Final = Change(
    "bucket_mb",
    "bucket_mb=MB",
    "gradients are reduced in buckets of this size, including the first, as DDP does when bucket_cap_mb is set",
    "larger buckets start later and hold more memory; smaller ones pay more latency",
    lambda value: f"DistributedDataParallel(model, bucket_cap_mb={value})",
    _apply,
    ("5", "50", "100"),
    remember=untouched("The buckets together hold all gradients, whatever their size."),
)
