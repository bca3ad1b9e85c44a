"""What if sharded parameters were gathered earlier?

The host enqueues the gathering of a unit when it comes to the unit so many places before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lostflops.predict.change import Change, Edited, Facts, NotApplicable
from lostflops.predict.edits.gathering import Gathering, moved
from lostflops.predict.edits.sound import sound
from lostflops.predict.edits.values import count

if TYPE_CHECKING:
    from lostflops.graph.tasks import TaskGraph

_UNORDERED: Final = "other work of the recorded steps stands between all-gathers and their units: they cannot be moved"


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    del facts
    wanted = 0 if value == "0" else count(value, "prefetch")
    found = Gathering(graph)
    if not found.series:
        raise NotApplicable("no step has two all-gathers of parameters in one pass: there is nothing to fetch ahead")
    if wanted == found.depth:
        raise NotApplicable(f"the run gathers {wanted} units ahead already")
    notes = (
        f"The run gathers {found.depth} units ahead, by what the host enqueued before its first kernel; now {wanted}.",
        "Memory for units that are gathered early, and waiting for it, is not counted.",
    )
    changed = sound(moved(graph, found, wanted), _UNORDERED)
    return Edited(changed, 0.3, notes, {"recorded_prefetch": found.depth})


CHANGE: Final = Change(
    "prefetch",
    "prefetch=K",
    "all-gathers of sharded parameters are enqueued so many units ahead; 0: each when its unit comes",
    "every unit that is gathered early holds its memory longer",
    lambda value: (
        f"module.set_modules_to_forward_prefetch(the next {value}) and set_modules_to_backward_prefetch (FSDP2); "
        "FSDP1: forward_prefetch=True, backward_prefetch=BackwardPrefetch.BACKWARD_PRE"
    ),
    _apply,
    ("1", "2"),
)
