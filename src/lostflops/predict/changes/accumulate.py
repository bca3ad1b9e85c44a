"""What if gradients were accumulated over several microbatches before being reduced?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lostflops.predict.change import Change, Edited, Facts, NotApplicable, Remembered
from lostflops.predict.edits.reductions import reductions
from lostflops.predict.edits.repeat import repeated
from lostflops.predict.edits.sound import sound
from lostflops.predict.edits.values import count
from lostflops.predict.remembered.accumulated import accumulated

if TYPE_CHECKING:
    from lostflops.graph.tasks import TaskGraph
    from lostflops.memory.blocks import Memory

_INTERLEAVED: Final = (
    "forward and backward are interleaved with other work, such as preparing the next batch, "
    "so no microbatch can be inserted before them"
)


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    del facts
    batches = count(value, "accumulate")
    if batches == 1:
        raise NotApplicable("accumulate=1 is one microbatch per step, as recorded")
    changed = sound(repeated(graph, reductions(graph), batches - 1), _INTERLEAVED)
    notes = (
        f"A step is one optimizer step over {batches} microbatches, each as large as a recorded batch.",
        "Each earlier microbatch repeats the recorded data loading, forward and backward, but reduces nothing.",
    )
    return Edited(changed, 0.1, notes, {"microbatches": batches})


def _how(value: str) -> str:
    return (
        f"with (model.no_sync() if (i + 1) % {value} else nullcontext()): loss.backward(); "
        f"optimizer.step() and zero_grad() every {value} microbatches"
    )


def _remember(memory: Memory, value: str, facts: Facts) -> Remembered:
    del value, facts
    note = "Gradients stay allocated; each microbatch adds to them. Activations are those of one microbatch."
    return Remembered(accumulated(memory), 0.1, (note,))


CHANGE: Final = Change(
    "accumulate",
    "accumulate=K",
    "gradients of K microbatches are summed before they are reduced (no_sync)",
    "the batch per step is K times as large: adjust learning rate and schedule",
    _how,
    _apply,
    ("2", "4"),
    remember=_remember,
)
