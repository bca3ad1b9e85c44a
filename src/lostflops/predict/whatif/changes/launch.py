"""What if launches cost the host no time, as with CUDA graphs?"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.editing import retime_graph
from lostflops.predict.graph.tasks import Because, Flags, LaneKind, TaskGraph, TaskKind
from lostflops.predict.whatif.change import Change, Edited, Facts
from lostflops.predict.whatif.graph_edits.selecting import on_lanes, on_line
from lostflops.predict.whatif.graph_edits.values import one_of

_DOUBT: Final = 0.2
_STALL: Final = 1_000_000
"""A host task of this many ns or more is not the dispatch of an op."""
_DISPATCH: Final = (TaskKind.HOST, TaskKind.LAUNCH)


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    del facts
    one_of(value, ("free",), "launch")
    tasks, edges = graph.tasks, graph.edges
    host = on_lanes(graph, LaneKind.HOST)
    launching = host & (tasks.kind == TaskKind.LAUNCH)
    if not launching.any():
        raise NotApplicable("nothing is launched on a device, so CUDA graphs do not help")
    first = _first_of_steps(graph, launching)
    cheap = host & np.isin(tasks.kind, _DISPATCH) & on_line(graph, "idle.host") & ~first & (tasks.duration < _STALL)
    duration, gap = tasks.duration.copy(), tasks.gap.copy()
    duration[cheap] = 0
    following = np.zeros(len(tasks), np.bool_)
    following[:-1] = cheap[1:] & graph.follows[1:]
    gap[following & (gap > 0)] = 0
    free = (edges.because == Because.LAUNCH) & ~first[edges.src]
    delay = np.where(free, 0, edges.delay)
    changed = replace(retime_graph(graph, duration=duration, gap=gap), edges=replace(edges, delay=delay))
    notes = (
        (
            "Op dispatch, launches and the gaps between them take no time, except one launch per step. Kernel times, "
            "long Python sections, waits for data, allocations and synchronisations stay the same."
        ),
    )
    return Edited(graph=changed, doubt=_DOUBT, notes=notes)


def _first_of_steps(graph: TaskGraph, launching: Flags) -> Flags:
    """Select the first launch of each rank in each step."""
    rows = np.flatnonzero(launching)
    pairs = np.stack((graph.rank[rows], graph.tasks.step[rows]), axis=1)
    found = np.zeros(len(graph.tasks), np.bool_)
    found[rows[np.unique(pairs, axis=0, return_index=True)[1]]] = True
    return found


def _how(value: str) -> str:
    del value
    return 'torch.compile(model, mode="reduce-overhead"), or capture the step with torch.cuda.graph(...)'


CHANGE: Final = Change(
    name="launch",
    form="launch=free",
    about="dispatch and launch cost the host no time (CUDA graphs)",
    cost="shapes and addresses must be static, no synchronisation inside the graph, and its memory stays allocated",
    how=_how,
    apply=_apply,
    tried=("free",),
)
