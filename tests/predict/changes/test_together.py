"""Changes one after the other: in both orders the same, where they are about different things."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lostflops.graph.build import build
from lostflops.graph.replay import replay
from lostflops.predict.change import Facts
from lostflops.predict.changes import CHANGES
from lostflops.store.run import Run
from lostflops.testing import Losses, Network, SyntheticCluster, store
from predict.changes.linear import of_network

CLUSTER = SyntheticCluster(ranks=4, steps=3, network=Network(alpha=100_000, gbs=10), losses=Losses(sync=True))
BY_NAME = {change.name: change for change in CHANGES}


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    made = {}

    def of(cluster):
        if repr(cluster) not in made:
            with Run.open(store(cluster.generate(), tmp_path_factory.mktemp("c") / "run", host_names=True)) as run:
                made[repr(cluster)] = build(run)
        return made[repr(cluster)]

    return of


def step(graph, *asked):
    facts = Facts(of_network(CLUSTER.network))
    for text in asked:
        name, value = text.split("=")
        graph = BY_NAME[name].apply(graph, value, facts).graph
        graph.self_check()
    return replay(graph).mean_step


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("accumulate=2", "bucket_mb=1"),
        ("accumulate=2", "sync=removed"),
        ("bucket_mb=1", "zero=1"),
        ("bucket_mb=1", "straggler=2"),
        ("bucket_mb=1", "launch=free"),
    ],
)
def test_either_order(graphs, one, other):
    graph = graphs(CLUSTER)
    assert step(graph, one, other) == pytest.approx(step(graph, other, one), rel=0.002)


def test_again_is_as_once(graphs):
    graph = graphs(CLUSTER)
    assert step(graph, "accumulate=2", "accumulate=2") == step(graph, "accumulate=4")
    assert step(graph, "bucket_mb=1", "bucket_mb=100") == pytest.approx(step(graph, "bucket_mb=100"), rel=0.001)


def test_buckets_of_a_run_that_accumulates(graphs):
    """Gradients are ready in the last backward pass, not in the first."""
    gains = []
    for cluster in (CLUSTER, replace(CLUSTER, microbatches=2)):
        graph = graphs(cluster)
        gains.append(step(graph) - step(graph, "bucket_mb=1"))
    assert gains[1] == pytest.approx(gains[0], rel=0.01)
