"""Predictions against the truth: a cluster is generated as it is, and as the change would have it."""

from __future__ import annotations

from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any

from lostflops import Run
from lostflops.predict.graph.build import build
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import TaskGraph
from lostflops.predict.whatif.change import Change, Facts
from lostflops.predict.whatif.work_facts import work_facts
from lostflops.testing import SyntheticCluster, store

_READ: dict[str, tuple[TaskGraph, Facts]] = {}


def wall(cluster: SyntheticCluster) -> float:
    """Mean step of all ranks, as it truly was."""
    steps = [step.wall for rank in cluster.generate().truth.ranks for step in rank.steps]
    return sum(steps) / len(steps)


def predicted(cluster: SyntheticCluster, change: Change, value: str) -> float:
    """Mean step that the change predicts from the traces of the cluster."""
    key = repr(cluster)
    if key not in _READ:
        _READ[key] = _read(cluster)
    graph, facts = _READ[key]
    before = replay(graph)
    after = replay(change.apply(graph, value, facts).graph)
    return wall(cluster) * after.mean_step / before.mean_step


def _read(cluster: SyntheticCluster) -> tuple[TaskGraph, Facts]:
    with TemporaryDirectory() as folder, Run.open(store(cluster.generate(), f"{folder}/run", host_names=True)) as run:
        told = work_facts(run)
        ((device,),) = run.sql("select any_value(device) from ranks").fetchall()
        return build(run), Facts(times=None, device=device, dtype=told.dtype, recomputed=told.recomputed)


def error(cluster: SyntheticCluster, change: Change, value: str, **changed: Any) -> float:
    """By what part of the truth the prediction is wrong."""
    return predicted(cluster, change, value) / wall(replace(cluster, **changed)) - 1
