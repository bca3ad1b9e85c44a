"""What if gradients were reduced with the last microbatch of a step alone?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lostflops.predict.change import Change, Edited, Facts
from lostflops.predict.edits.each_microbatch import repeated_reductions
from lostflops.predict.edits.fewer_collectives import without_calls
from lostflops.predict.edits.sound import sound
from lostflops.predict.edits.values import one_of

if TYPE_CHECKING:
    from lostflops.graph.tasks import TaskGraph


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    del facts
    one_of(value, ("on",), "no_sync")
    found = repeated_reductions(graph)
    changed = sound(without_calls(graph, found.early), "tasks would come to wait for each other")
    note = f"Of {found.passes} microbatches of a step the last one reduces gradients; copies into buckets stay."
    return Edited(changed, 0.1, (note,), {"reducing_passes": found.passes})


CHANGE: Final = Change(
    "no_sync",
    "no_sync=on",
    "of the microbatches of a step only the last one reduces gradients",
    "gradients of a step are the same sums; between microbatches those of ranks differ",
    lambda _: (
        "with (nullcontext() if is_last else model.no_sync()): model(batch).backward(), for each microbatch of a "
        "step; FSDP2: model.set_requires_gradient_sync(is_last)"
    ),
    _apply,
    ("on",),
)
