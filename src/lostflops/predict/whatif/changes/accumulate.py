"""What if gradients were accumulated over several microbatches before being reduced?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lostflops.core.errors import NotApplicable
from lostflops.predict.whatif.change import Change, Edited, Facts, Remembered
from lostflops.predict.whatif.graph_edits.reductions import reductions
from lostflops.predict.whatif.graph_edits.repeat import repeat_passes
from lostflops.predict.whatif.graph_edits.sound import sound
from lostflops.predict.whatif.graph_edits.values import count
from lostflops.predict.whatif.memory_edits.accumulated import accumulate_gradients

if TYPE_CHECKING:
    from lostflops.account.memory.blocks import RankMemory
    from lostflops.predict.graph.tasks import TaskGraph

_INTERLEAVED: Final = (
    "forward and backward are interleaved with other work, such as preparing the next batch, "
    "so no microbatch can be inserted before them"
)


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    del facts
    batches = count(value, "accumulate")
    if batches == 1:
        raise NotApplicable("accumulate=1 is one microbatch per step, as recorded")
    changed = sound(repeat_passes(graph, reductions(graph), batches - 1), _INTERLEAVED)
    notes = (
        f"A step is one optimizer step over {batches} microbatches, each as large as a recorded batch.",
        "Each earlier microbatch repeats the recorded data loading, forward and backward, but reduces nothing.",
    )
    return Edited(graph=changed, doubt=0.1, notes=notes, extra={"microbatches": batches})


def _how(value: str) -> str:
    return (
        f"with (model.no_sync() if (i + 1) % {value} else nullcontext()): loss.backward(); "
        f"optimizer.step() and zero_grad() every {value} microbatches"
    )


def _remember(memory: RankMemory, value: str, facts: Facts) -> Remembered:
    del value, facts
    note = "Gradients stay allocated; each microbatch adds to them. Activations are those of one microbatch."
    return Remembered(accumulate_gradients(memory), 0.1, (note,))


CHANGE: Final = Change(
    name="accumulate",
    form="accumulate=K",
    about="gradients of K microbatches are summed before they are reduced (no_sync)",
    cost="the batch per step is K times as large: adjust learning rate and schedule",
    how=_how,
    apply=_apply,
    tried=("2", "4"),
    remember=_remember,
)
