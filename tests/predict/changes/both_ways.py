"""Predictions against the truth: a cluster is generated as it is, and as the change would have it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lostflops import Run
from lostflops.graph.build import build
from lostflops.graph.replay import replay
from lostflops.predict.change import Change, Facts
from lostflops.predict.work_facts import work_facts
from lostflops.testing import SyntheticCluster, store

STEPS = 4


def wall(cluster: SyntheticCluster) -> float:
    """Mean step of all ranks, as it truly was."""
    steps = [step.wall for rank in cluster.generate().truth.ranks for step in rank.steps]
    return sum(steps) / len(steps)


def predicted(cluster: SyntheticCluster, change: Change, value: str, folder: Any) -> float:
    """Mean step that the change predicts from the traces of the cluster."""
    generated = cluster.generate()
    with Run.open(store(generated, folder / "run", host_names=True)) as run:
        graph = build(run)
        told = work_facts(run)
        (device,) = run.sql("select any_value(device) from ranks").fetchone() or (None,)
    facts = Facts(times=None, device=device, dtype=told.dtype, recomputed=told.recomputed)
    before = replay(graph)
    after = replay(change.apply(graph, value, facts).graph)
    return wall(cluster) * after.mean_step / before.mean_step


def error(cluster: SyntheticCluster, change: Change, value: str, folder: Any, **changed: Any) -> float:
    """By what part of the truth the prediction is wrong."""
    return predicted(cluster, change, value, folder) / wall(replace(cluster, **changed)) - 1
