"""What if Python code between ops took less time, or no time?"""

from __future__ import annotations

from typing import Final

from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.editing import retime_graph, scale_rows
from lostflops.predict.graph.tasks import Flags, LaneKind, TaskGraph, TaskKind
from lostflops.predict.whatif.change import Change, Edited, Facts
from lostflops.predict.whatif.graph_edits.selecting import on_lanes, on_line
from lostflops.predict.whatif.graph_edits.values import times
from lostflops.predict.whatif.memory_edits.unchanged_memory import keep_memory_unchanged

_REMOVED: Final = "removed"
_DOUBT: Final = 0.1


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    del facts
    stays = 0.0 if value == _REMOVED else times(value, "python")
    python = _between_ops(graph)
    if not python.any():
        raise NotApplicable("Python code between ops takes too little time to measure")
    note = (
        "Sections of the training thread without any op take "
        + (f"{stays:g}x as long" if stays else "no time")
        + "; waits for batches, for the device and for other ranks stay, and on a device also sections below 20 us."
    )
    return Edited(
        graph=retime_graph(graph, duration=scale_rows(graph.tasks.duration, python, stays)), doubt=_DOUBT, notes=(note,)
    )


def _between_ops(graph: TaskGraph) -> Flags:
    """Select time that the ledger calls idle.python while nothing else ran; ranks that met in it waited, and keep that
    time."""
    tasks = graph.tasks
    found: Flags = (tasks.kind == TaskKind.HOST) & (tasks.meeting < 0) & (tasks.duration > 0)
    return found & on_line(graph, "idle.python") & on_lanes(graph, LaneKind.HOST)


def _how(value: str) -> str:
    del value
    return (
        "move logging, metrics, string formatting, checkpoints and garbage collection out of the loop: every n steps, "
        "or in a separate thread or process. lostflops report names the lines"
    )


CHANGE: Final = Change(
    name="python",
    form="python=removed|0.5x",
    about="Python code between ops takes no time (removed), or this factor of its time",
    cost="values are logged less often or later; code that the next step needs cannot be removed",
    how=_how,
    apply=_apply,
    tried=(_REMOVED,),
    is_bound=True,
    remember=keep_memory_unchanged("Python code between ops does not change what ops allocate."),
)
