"""What if only the last microbatch of a step reduced gradients?"""

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
    changed = sound(without_calls(graph, found.early), "tasks would wait for each other in a cycle")
    note = f"Only the last of {found.passes} microbatches per step reduces gradients; copies into buckets stay."
    return Edited(changed, 0.1, (note,), {"reducing_passes": found.passes})


def _remember(memory: Memory, value: str, facts: Facts) -> Remembered:
    del value
    if is_sharded(trained(facts)):
        raise NotApplicable("gradients that are not reduced stay unsharded, and their lifetime was not recorded")
    return Remembered(memory, 0.0, ("Gradients are summed in place, reduced or not.",))


CHANGE: Final = Change(
    "no_sync",
    "no_sync=on",
    "only the last microbatch of a step reduces gradients",
    "the gradients of a step stay the same; between microbatches, ranks hold different gradients",
    lambda _: (
        "with (nullcontext() if is_last else model.no_sync()): model(batch).backward(), for each microbatch of a "
        "step; FSDP2: model.set_requires_gradient_sync(is_last)"
    ),
    _apply,
    ("on",),
    remember=_remember,
)
