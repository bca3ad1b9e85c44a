"""What if the first bucket of gradients had another size?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lostflops.predict.change import Change, Edited, Facts
from lostflops.predict.edits.rebucket import MIB, rebucketed
from lostflops.predict.edits.values import number
from lostflops.predict.remembered.untouched import untouched

if TYPE_CHECKING:
    from lostflops.graph.tasks import TaskGraph


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    """Others close at the size of the smallest recorded one between the first and the last: they held their limit or
    more, by less than a parameter."""
    first = number(value, "first_bucket_mb") * MIB
    return rebucketed(graph, facts, lambda sizes: (first, float(min(sizes[1:-1], default=max(sizes)))))


CHANGE: Final = Change(
    "first_bucket_mb",
    "first_bucket_mb=MB",
    "the first bucket of gradients closes at so many MiB; the others as recorded",
    "a larger one starts later; a smaller one pays latency once more",
    lambda value: (
        f"DistributedDataParallel(model, bucket_cap_mb_list=[{value}, 25]) where torch has it (2.13 does), with the "
        f"size of the others for 25; else torch.distributed._DEFAULT_FIRST_BUCKET_BYTES = int({value} * 2**20) before "
        "it, with bucket_cap_mb left out"
    ),
    _apply,
    ("0.25", "4"),
    remember=untouched("Buckets hold all gradients together, whatever the size of one."),
)
