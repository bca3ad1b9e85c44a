"""What if the small collectives that the host waits for immediately were removed?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lostflops.predict.change import Change, Edited, Facts
from lostflops.predict.edits.fewer_collectives import without_calls
from lostflops.predict.edits.small_calls import small_calls
from lostflops.predict.edits.sound import sound
from lostflops.predict.edits.values import one_of
from lostflops.predict.remembered.untouched import untouched

if TYPE_CHECKING:
    from lostflops.graph.tasks import TaskGraph


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    one_of(value, ("removed",), "blocking")
    chosen = small_calls(graph, facts)
    changed = sound(without_calls(graph, chosen), "tasks would wait for each other in a cycle")
    count = int(chosen[graph.tasks.meeting[graph.tasks.meeting >= 0]].sum()) / max(len(graph.steps), 1)
    note = f"{count:.3g} small collectives per step and rank are removed; the compute that feeds them stays."
    return Edited(changed, 0.15, (note,), {"collectives_before": count})


CHANGE: Final = Change(
    "blocking",
    "blocking=removed",
    "small collectives that the host waits for immediately, such as metric averages and barriers, are removed",
    "values are known later, or only every n steps; keep barriers that correctness depends on",
    lambda _: (
        "stack metrics into one tensor and all_reduce it every n steps, or use async_op=True and wait() a step later; "
        "no dist.barrier() in the loop"
    ),
    _apply,
    ("removed",),
    remember=untouched("Small collectives hold almost no memory."),
)
