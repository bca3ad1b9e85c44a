"""What if gradients were accumulated over several microbatches before they are reduced?"""

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
    "passes of the recorded steps are interleaved with other work, such as that of the next batch: "
    "no microbatch can be put in front of them"
)


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    del facts
    batches = count(value, "accumulate")
    if batches == 1:
        raise NotApplicable("accumulate=1 is a step of one microbatch, as recorded")
    changed = sound(repeated(graph, reductions(graph), batches - 1), _INTERLEAVED)
    notes = (
        f"A step is one optimizer step of {batches} microbatches, each as large as a recorded step's.",
        "Microbatches before the last take what forward and backward pass and data took, and reduce nothing.",
    )
    return Edited(changed, 0.1, notes, {"microbatches": batches})


def _how(value: str) -> str:
    return (
        f"with (model.no_sync() if (i + 1) % {value} else nullcontext()): loss.backward(); "
        f"optimizer.step() and zero_grad() every {value} microbatches"
    )


def _remember(memory: Memory, value: str, facts: Facts) -> Remembered:
    del value, facts
    note = "Gradients are there throughout: those of a microbatch are added to sums. Activations are those of one."
    return Remembered(accumulated(memory), 0.1, (note,))


CHANGE: Final = Change(
    "accumulate",
    "accumulate=K",
    "gradients of so many microbatches are added up before they are reduced (no_sync)",
    "a step sees K times the batch: learning rate and schedule have to follow",
    _how,
    _apply,
    ("2", "4"),
    remember=_remember,
)
