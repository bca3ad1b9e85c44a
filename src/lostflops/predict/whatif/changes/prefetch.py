"""What if sharded parameters were gathered earlier?

The host enqueues the all-gather of a unit when it reaches the unit K places before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lostflops.core.errors import NotApplicable
from lostflops.predict.whatif.change import Change, Edited, Facts
from lostflops.predict.whatif.graph_edits.gathering import Gathering, move_gathers
from lostflops.predict.whatif.graph_edits.sound import sound
from lostflops.predict.whatif.graph_edits.values import count

if TYPE_CHECKING:
    from lostflops.predict.graph.tasks import TaskGraph

_UNORDERED: Final = "other work runs between the all-gathers and their units, so they cannot be moved"


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    del facts
    wanted = 0 if value == "0" else count(value, "prefetch")
    found = Gathering(graph)
    if not found.series:
        raise NotApplicable("no step has two parameter all-gathers in one pass: there is nothing to prefetch")
    if wanted == found.depth:
        raise NotApplicable(f"the run already gathers {wanted} units ahead")
    notes = (
        f"Units gathered ahead: {found.depth} in the run (from the order of enqueued work), {wanted} with the change.",
        "Memory for units gathered early, and waits for that memory, are not counted.",
    )
    changed = sound(move_gathers(graph, found, wanted), _UNORDERED)
    return Edited(graph=changed, doubt=0.3, notes=notes, extra={"recorded_prefetch": found.depth})


CHANGE: Final = Change(
    name="prefetch",
    form="prefetch=K",
    about="all-gathers of sharded parameters are enqueued K units ahead; 0: no prefetch",
    cost="units gathered early hold their memory longer",
    how=lambda value: (
        f"module.set_modules_to_forward_prefetch(the next {value}) and set_modules_to_backward_prefetch (FSDP2); "
        "FSDP1: forward_prefetch=True, backward_prefetch=BackwardPrefetch.BACKWARD_PRE"
    ),
    apply=_apply,
    tried=("1", "2"),
)
