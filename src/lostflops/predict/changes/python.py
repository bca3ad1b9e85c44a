"""What if Python between ops took the host less time, or none?"""

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
        raise NotApplicable("the host runs no Python between ops that takes long enough to be told")
    note = (
        "All stretches without any op on the host's training thread take "
        + (f"{stays:g} times what they did" if stays else "no time")
        + "; on a device those below 20 us stay, and so do waits for batches, for the device and for other ranks."
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
        "take logging, metrics, string work, checkpoints and garbage collection out of the loop: every n steps, or on "
        "a thread or process of their own. lostflops report names the lines"
    )


CHANGE: Final = Change(
    name="python",
    form="python=removed|0.5x",
    about="Python between ops takes the host no time, or times as much",
    cost="values are logged less often, or later; what the program needs to go on cannot be removed",
    how=_how,
    apply=_apply,
    tried=(_REMOVED,),
    is_bound=True,
    remember=untouched("What ops allocate does not depend on what Python does between them."),
)
