"""Two ranks that meet once a step, a run on disk to keep predictions in, and changes whose truth is plain."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.editing import retime_graph, scale_rows
from lostflops.predict.graph.tasks import LaneKind, TaskGraph, TaskKind
from lostflops.predict.whatif.change import Change, Edited, Facts
from lostflops.predict.whatif.graph_edits.values import times
from lostflops.testing import Model, SyntheticCluster, store
from tests.predict.graph.tiny import L, M, T, graph

COMPUTE, TRANSFER = 80, 20
STEP = COMPUTE + TRANSFER


def made(measured: tuple[int, ...] = (STEP, STEP, STEP)) -> TaskGraph:
    """Each rank computes, then both exchange; `measured` is what each step took on both."""
    lanes, steps = [], []
    for rank in (0, 1):
        tasks = []
        for step in range(len(measured)):
            end = T(f"{rank} x{step}", 0, 0, TaskKind.COMM, f"m{step}", step)
            tasks += [T(f"{rank} c{step}", COMPUTE, 0, TaskKind.KERNEL, step=step, line="compute"), end]
            steps.append((rank, step, "", ""))
        lanes.append(L(rank, LaneKind.STREAM, tasks))
    made = graph(lanes, meetings={f"m{step}": M(TRANSFER) for step in range(len(measured))}, steps=steps)
    return replace(made, steps=replace(made.steps, measured=np.array(measured * 2, np.int64)))


def of(graph: TaskGraph) -> Any:
    """A builder that knows one graph."""
    return lambda run, progress: graph


def _network(graph: TaskGraph, value: str, facts: Facts, doubt: float) -> Edited:
    factor = 1 / times(value, "network")
    transfer = scale_rows(graph.meetings.transfer, np.ones(len(graph.meetings), np.bool_), factor)
    return Edited(
        graph=retime_graph(graph, transfer=transfer), doubt=doubt, notes=("bytes stay",), extra={"factor": factor}
    )


def _compute(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    rows = graph.tasks.kind == TaskKind.KERNEL
    return Edited(
        graph=retime_graph(graph, duration=scale_rows(graph.tasks.duration, rows, 1 / times(value, "compute"))),
        doubt=0.0,
    )


def _twice(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    return Edited(graph=_compute(graph, "0.5x", facts).graph, doubt=0.0, notes=(), extra={"microbatches": 2})


def _never(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    raise NotApplicable("no loader was recorded")


def change(name: str, apply: Any, *tried: str) -> Change:
    return Change(
        name=name,
        form=f"{name}=2x",
        about=f"a faster {name}",
        cost=f"buy a {name}",
        how=lambda value: f"{name} {value}",
        apply=apply,
        tried=tried,
        again=True,
    )


CHANGES = (
    change("network", partial(_network, doubt=0.5), "1x", "2x"),
    change("compute", _compute, "2x"),
    change("never", _never, "on"),
    change("untried", _compute),
)
LARGER_STEPS = (change("twice", _twice, "on"),)


def disk_run(folder: Path, slower: int = 1) -> Path:
    """Two ranks on disk; with `slower` every kernel takes so many times as long."""
    layer = tuple(replace(kernel, duration=kernel.duration * slower) for kernel in Model().kernels)
    return store(SyntheticCluster(ranks=2, model=replace(Model(), kernels=layer)).generate(), folder)
