"""What if the small collectives that the host waits for immediately were removed?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lostflops.predict.whatif.change import Change, Edited, Facts
from lostflops.predict.whatif.graph_edits.checked_replay import replay_or_refuse
from lostflops.predict.whatif.graph_edits.fewer_collectives import without_calls
from lostflops.predict.whatif.graph_edits.small_calls import small_calls
from lostflops.predict.whatif.graph_edits.values import one_of
from lostflops.predict.whatif.memory_edits.unchanged_memory import keep_memory_unchanged

if TYPE_CHECKING:
    from lostflops.predict.graph.tasks import TaskGraph


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    one_of(value, ("removed",), "blocking")
    chosen = small_calls(graph, facts)
    done = replay_or_refuse(without_calls(graph, chosen), "tasks would wait for each other in a cycle")
    count = int(chosen[graph.tasks.meeting[graph.tasks.meeting >= 0]].sum()) / max(len(graph.steps), 1)
    note = f"{count:.3g} small collectives per step and rank are removed; the compute that feeds them stays."
    return Edited(graph=done.graph, schedule=done, doubt=0.15, notes=(note,), extra={"collectives_before": count})


CHANGE: Final = Change(
    name="blocking",
    form="blocking=removed",
    about="small collectives that the host waits for immediately, such as metric averages and barriers, are removed",
    cost="values are known later, or only every n steps; keep barriers that correctness depends on",
    how=lambda _: (
        "stack metrics into one tensor and all_reduce it every n steps, or use async_op=True and wait() a step later; "
        "no dist.barrier() in the loop"
    ),
    apply=_apply,
    tried=("removed",),
    remember=keep_memory_unchanged("Small collectives hold almost no memory."),
)
