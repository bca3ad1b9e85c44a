"""Removal of collectives from a graph."""

from __future__ import annotations

import numpy as np

from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.editing import drop_tasks, retime_graph
from lostflops.predict.graph.tasks import NONE, Because, Flags, TaskGraph, TaskKind
from lostflops.predict.whatif.graph_edits.reductions import members


def without_calls(graph: TaskGraph, meetings: Flags) -> TaskGraph:
    """Remove these collectives: no rank enqueues them, and nothing waits for them."""
    rows = members(graph, meetings)
    gone = np.zeros(len(graph.tasks), np.bool_)
    gone[rows] = True
    ends = np.concatenate((graph.steps.first, graph.steps.last))
    if gone[ends[ends != NONE]].any():
        raise NotApplicable("a step begins or ends with one of the collectives to remove")
    edges, tasks = graph.edges, graph.tasks
    asks = np.unique(edges.src[gone[edges.dst] & np.isin(edges.because, (Because.LAUNCH, Because.THREAD))])
    asks = asks[np.isin(tasks.kind[asks], (TaskKind.HOST, TaskKind.LAUNCH))]
    duration = tasks.duration.copy()
    duration[asks] = 0
    return drop_tasks(retime_graph(graph, duration=duration), rows)
