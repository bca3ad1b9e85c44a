"""What if only the last microbatch of a step reduced gradients?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lostflops.core.errors import NotApplicable
from lostflops.predict.whatif.change import Change, Edited, Facts, Remembered
from lostflops.predict.whatif.graph_edits.checked_replay import replay_or_refuse
from lostflops.predict.whatif.graph_edits.each_microbatch import repeated_reductions
from lostflops.predict.whatif.graph_edits.fewer_collectives import without_calls
from lostflops.predict.whatif.graph_edits.values import one_of
from lostflops.predict.whatif.memory_edits.sharding import is_sharded, require_trained_parameters

if TYPE_CHECKING:
    from lostflops.account.memory.blocks import RankMemory
    from lostflops.predict.graph.tasks import TaskGraph


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    del facts
    one_of(value, ("on",), "no_sync")
    found = repeated_reductions(graph)
    done = replay_or_refuse(without_calls(graph, found.early), "tasks would wait for each other in a cycle")
    note = f"Only the last of {found.passes} microbatches per step reduces gradients; copies into buckets stay."
    return Edited(graph=done.graph, schedule=done, doubt=0.1, notes=(note,), extra={"reducing_passes": found.passes})


def _remember(memory: RankMemory, value: str, facts: Facts) -> Remembered:
    del value
    if is_sharded(require_trained_parameters(facts)):
        raise NotApplicable("gradients that are not reduced stay unsharded, and their lifetime was not recorded")
    return Remembered(memory, 0.0, ("Gradients are summed in place, reduced or not.",))


CHANGE: Final = Change(
    name="no_sync",
    form="no_sync=on",
    about="only the last microbatch of a step reduces gradients",
    cost="the gradients of a step stay the same; between microbatches, ranks hold different gradients",
    how=lambda _: (
        "with (nullcontext() if is_last else model.no_sync()): model(batch).backward(), for each microbatch of a "
        "step; FSDP2: model.set_requires_gradient_sync(is_last)"
    ),
    apply=_apply,
    tried=("on",),
    remember=_remember,
)
