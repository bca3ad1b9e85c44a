"""Changes one after the other: in both orders the same, where they are about different things."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.predict.whatif.changes.linear import of_network

from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.build import build
from lostflops.predict.graph.replay import replay
from lostflops.predict.whatif.change import Facts
from lostflops.predict.whatif.changes import CHANGES
from lostflops.store.run import Run
from lostflops.testing import Losses, Network, SyntheticCluster, store

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
    facts = Facts(times=of_network(CLUSTER.network))
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


def answered(graph, facts, *asked):
    """As `answer` does: later changes know what earlier ones made of the facts."""
    for text in asked:
        name, value = text.split("=")
        edited = BY_NAME[name].apply(graph, value, facts)
        graph, facts = edited.graph, edited.facts or facts
    return replay(graph).mean_step


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("network.bandwidth=4x", "bucket_mb=100"),
        ("network.latency=4x", "bucket_mb=100"),
        ("network.bandwidth=4x", "zero=1"),
        ("network.bandwidth=4x", "compression=0.5x"),
        ("world_size=16", "bucket_mb=100"),
    ],
)
def test_later_changes_know_of_the_earlier(graphs, one, other):
    graph, facts = graphs(CLUSTER), Facts(times=of_network(CLUSTER.network))
    assert answered(graph, facts, one, other) == pytest.approx(answered(graph, facts, other, one), rel=0.002)


def test_on_another_device_its_own_peaks_count(graphs):
    graph, facts = graphs(CLUSTER), Facts(times=None, device="NVIDIA H100 80GB HBM3", dtype="bf16")
    there = answered(graph, facts, "device=A100-SXM4-80GB")
    assert answered(graph, facts, "device=A100-SXM4-80GB", "device=H100-SXM5") == pytest.approx(step(graph), rel=0.02)
    assert there > 1.1 * step(graph)


def test_what_is_sharded_is_not_sharded_again(graphs):
    with pytest.raises(NotApplicable, match="already gathered after the optimizer step"):
        step(graphs(replace(CLUSTER, sharding=1)), "zero=1")
    with pytest.raises(NotApplicable, match="already gathered after the optimizer step"):
        step(graphs(CLUSTER), "zero=1", "zero=2")


def test_unknown_latency_is_in_the_interval(graphs):
    """One size was recorded: time goes with bytes, and eighty small buckets may cost far more than is told."""
    unknown = BY_NAME["bucket_mb"].apply(graphs(CLUSTER), "0.1", Facts(times=None))
    told = replay(unknown.graph).mean_step
    assert told + unknown.off > step(graphs(CLUSTER), "bucket_mb=0.1") > told * 1.5
