"""What if Python code between ops took less time, or no time?"""

from __future__ import annotations

from typing import Final

from lostflops.graph.editing import retimed, scaled
from lostflops.graph.tasks import Flags, Kind, LaneKind, TaskGraph
from lostflops.predict.change import Change, Edited, Facts, NotApplicable
from lostflops.predict.edits.selecting import on_lanes, on_line
from lostflops.predict.edits.values import times
from lostflops.predict.remembered.untouched import untouched

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
    return Edited(retimed(graph, duration=scaled(graph.tasks.duration, python, stays)), _DOUBT, (note,))


def _between_ops(graph: TaskGraph) -> Flags:
    """What the ledger calls idle.python where nothing else ran; ranks that met in it waited, and keep that."""
    tasks = graph.tasks
    found: Flags = (tasks.kind == Kind.HOST) & (tasks.meeting < 0) & (tasks.duration > 0)
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
    remember=untouched("Python code between ops does not change what ops allocate."),
)
