"""Evenly distributed work: between ranks that do the same, and between the stages of a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.predict.graph.editing import retime_graph
from lostflops.predict.graph.tasks import Flags, LaneKind, TaskGraph, TaskKind
from lostflops.predict.whatif.graph_edits.late_ranks import groups
from lostflops.predict.whatif.graph_edits.selecting import number_distinct_rows

Floats = npt.NDArray[np.float64]
_SMALLEST: Final = 1.0


def computing(graph: TaskGraph) -> Flags:
    found: Flags = (graph.tasks.kind == TaskKind.KERNEL) & (graph.tasks.meeting < 0)
    return found


def even_ranks(graph: TaskGraph, kinds: Sequence[Sequence[int]]) -> TaskGraph:
    """Make ranks of one kind compute equally long: between two collectives of a step, each rank takes the mean of its
    kind; without a host, each op takes the mean of its name, kind and step."""
    duration = graph.tasks.duration.copy()
    for kind in kinds:
        rows = np.flatnonzero(computing(graph) & np.isin(graph.rank, kind))
        if not rows.size:
            continue
        if (graph.lanes.kind == LaneKind.STREAM).all():
            like = number_distinct_rows(graph.tasks.name[rows], graph.tasks.step[rows])
            means = np.bincount(like, duration[rows]) / np.bincount(like)
            duration[rows] = np.round(means[like])
        else:
            own = groups(graph, rows, kind)
            duration[rows] = np.round(duration[rows] * _factors(own, graph.rank[rows], duration[rows]))
    return retime_graph(graph, duration=duration)


def _factors(group: npt.NDArray[np.int64], rank: npt.NDArray[np.int32], ns: npt.NDArray[np.int64]) -> Floats:
    """Return the factor for each task's time that makes its group take equally long on all ranks that have it."""
    pair = number_distinct_rows(group, rank)
    total = np.bincount(pair, ns)
    first = np.unique(pair, return_index=True)[1]
    of_group = group[first]
    mean = np.bincount(of_group, total) / np.maximum(np.bincount(of_group), 1)
    factor = np.where(total >= _SMALLEST, mean[of_group] / np.maximum(total, _SMALLEST), 1.0)
    found: Floats = factor[pair]
    return found


def even_stages(graph: TaskGraph, stages: Sequence[Sequence[int]]) -> TaskGraph:
    """Make the ranks of each stage compute as long as those of the mean stage."""
    own = computing(graph)
    took = np.array([graph.tasks.duration[own & np.isin(graph.rank, ranks)].sum() / len(ranks) for ranks in stages])
    duration = graph.tasks.duration.copy()
    for ranks, ns in zip(stages, took.tolist(), strict=True):
        rows = own & np.isin(graph.rank, ranks)
        duration[rows] = np.round(duration[rows] * (float(took.mean()) / max(ns, _SMALLEST)))
    return retime_graph(graph, duration=duration)
