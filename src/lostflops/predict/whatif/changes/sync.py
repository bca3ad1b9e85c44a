"""What if the host never waited for the device?"""

from __future__ import annotations

from typing import Final

import numpy as np

from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.editing import retime_graph, without_edges
from lostflops.predict.graph.tasks import Because, Flags, Index, LaneKind, TaskGraph, TaskKind
from lostflops.predict.whatif.change import Change, Edited, Facts
from lostflops.predict.whatif.graph_edits.selecting import launchers, names_with, on_lanes, on_line
from lostflops.predict.whatif.graph_edits.values import one_of
from lostflops.predict.whatif.memory_edits.unchanged_memory import keep_memory_unchanged

_DOUBT: Final = 0.15
_READS: Final = ("aten::item", "aten::_local_scalar_dense")


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    del facts
    one_of(value, ("removed",), "sync")
    edges, tasks = graph.edges, graph.tasks
    waits = (tasks.kind == TaskKind.SYNC) & (tasks.step >= 0) & ~on_line(graph, "idle.alloc")
    held = waits[edges.dst] & on_lanes(graph, LaneKind.STREAM)[edges.src] & (edges.because == Because.SYNC)
    if not held.any():
        raise NotApplicable("the host never waits for the device in a step: there is no synchronisation to remove")
    gone = np.unique(edges.dst[held])
    duration, gap = tasks.duration.copy(), tasks.gap.copy()
    duration[gone] = 0
    read = _reading(graph, edges.src[held])
    duration[read] = 0
    gap[read & on_lanes(graph, LaneKind.HOST)] = 0
    steps = max(len(graph.steps), 1)
    note = (
        f"{gone.size / steps:.3g} waits per step and rank are removed, including copies to the host, logging at the "
        "end of a step and the ops that read a value; the host then runs ahead as far as it can."
    )
    return Edited(
        graph=without_edges(retime_graph(graph, duration=duration, gap=gap), held), doubt=_DOUBT, notes=(note,)
    )


def _reading(graph: TaskGraph, awaited: Index) -> Flags:
    """Select what is done to read a value that the host waits for: the copy, its launch and the op around that."""
    found = np.zeros(len(graph.tasks), np.bool_)
    copies = awaited[(graph.tasks.kind[awaited] == TaskKind.COPY) & names_with(graph, "dtoh")[awaited]]
    found[copies] = True
    caller = launchers(graph)[copies]
    found[caller[caller >= 0]] = True
    found |= names_with(graph, *_READS) & (graph.tasks.kind == TaskKind.HOST)
    return found


def _how(value: str) -> str:
    del value
    return (
        "keep losses and metrics on the device and read them every n steps: no .item(), .cpu(), print(tensor) or "
        "torch.cuda.synchronize() in the loop; copy with pin_memory=True and non_blocking=True. lostflops report "
        "names the lines that block"
    )


CHANGE: Final = Change(
    name="sync",
    form="sync=removed",
    about="the host never waits for the device in a step",
    cost="values are known later; a wait whose value decides what runs next (gradient overflow) cannot be removed",
    how=_how,
    apply=_apply,
    tried=("removed",),
    remember=keep_memory_unchanged("The allocator hands out the same memory, however far the host runs ahead."),
)
