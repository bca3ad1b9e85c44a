"""What if gradients were reduced with the last microbatch of a step alone?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lostflops.predict.change import Change, Edited, Facts, NotApplicable, Remembered
from lostflops.predict.edits.each_microbatch import repeated_reductions
from lostflops.predict.edits.fewer_collectives import without_calls
from lostflops.predict.edits.sound import sound
from lostflops.predict.edits.values import one_of
from lostflops.predict.remembered.sharding import is_sharded, trained

if TYPE_CHECKING:
    from lostflops.graph.tasks import TaskGraph
    from lostflops.memory.blocks import Memory


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    del facts
    one_of(value, ("on",), "no_sync")
    found = repeated_reductions(graph)
    changed = sound(without_calls(graph, found.early), "tasks would come to wait for each other")
    note = f"Of {found.passes} microbatches of a step the last one reduces gradients; copies into buckets stay."
    return Edited(changed, 0.1, (note,), {"reducing_passes": found.passes})


def _remember(memory: Memory, value: str, facts: Facts) -> Remembered:
    del value
    if is_sharded(trained(facts)):
        raise NotApplicable("gradients that are not reduced stay whole, and nothing recorded tells when they would")
    return Remembered(memory, 0.0, ("Gradients are summed in the same place whether they are reduced or not.",))


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
    remember=_remember,
)
