"""Long launch delays of ops that were recorded without a host, removed if they are waits for other ranks.

An op that starts much later than everything it is known to wait for was launched late, or waited for a rank that no
record names, such as the slowest of its data-parallel group in an average of losses. If steps take about as long
without these delays, they were waits; if kept, such a delay would hold a rank back for another that is no longer late.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from lostflops.predict.graph.editing import retime_graph
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import LaneKind, TaskGraph

_LONG: Final = 0.05
"""Part of a step. Shorter delays are launches, and stay."""
_SAME: Final = 0.05
"""Part of a step by which it may be shorter without long delays and still count as the same."""


def without_waits(graph: TaskGraph) -> tuple[TaskGraph, float]:
    """Return the graph without long launch delays if steps then take about as long, else the graph as it is; and by how
    many ns that alone makes the mean step shorter."""
    if bool((graph.lanes.kind != LaneKind.STREAM).any()):
        return graph, 0.0
    before = replay(graph).mean_step
    gap, delay = graph.tasks.gap, graph.edges.delay
    shorter = retime_graph(graph, gap=np.where(gap > _LONG * before, 0, gap))
    shorter = replace(shorter, edges=replace(graph.edges, delay=np.where(delay > _LONG * before, 0, delay)))
    saved = before - replay(shorter).mean_step
    return (shorter, max(saved, 0.0)) if abs(saved) <= _SAME * before else (graph, 0.0)
