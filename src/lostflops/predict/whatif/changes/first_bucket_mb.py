"""What if the first bucket of gradients had another size?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lostflops.predict.whatif.change import Change, Edited, Facts
from lostflops.predict.whatif.graph_edits.rebucket import MIB, rebucket_gradients
from lostflops.predict.whatif.graph_edits.values import number
from lostflops.predict.whatif.memory_edits.unchanged_memory import keep_memory_unchanged

if TYPE_CHECKING:
    from lostflops.predict.graph.tasks import TaskGraph


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    """Change the first bucket. The others close at the size of the smallest recorded one between the first and the
    last: recorded buckets held their limit or more, by less than one parameter."""
    first = number(value, "first_bucket_mb") * MIB
    return rebucket_gradients(graph, facts, lambda sizes: (first, float(min(sizes[1:-1], default=max(sizes)))))


CHANGE: Final = Change(
    name="first_bucket_mb",
    form="first_bucket_mb=MB",
    about="the first gradient bucket has this size; the others stay as recorded",
    cost="a larger first bucket starts later; a smaller one adds the latency of one more reduction",
    how=lambda value: (
        f"DistributedDataParallel(model, bucket_cap_mb_list=[{value}, 25]) if torch has it (2.13 does), with the size "
        f"of the other buckets instead of 25; else set torch.distributed._DEFAULT_FIRST_BUCKET_BYTES = int({value} * "
        "2**20) before creating DDP, and leave out bucket_cap_mb"
    ),
    apply=_apply,
    tried=("0.25", "4"),
    remember=keep_memory_unchanged("The buckets together hold all gradients, whatever their size."),
)
