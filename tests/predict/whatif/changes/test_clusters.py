"""Every change on a synthetic cluster that was generated both ways: predicted and true mean step within 2%."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean

import pytest
from tests.predict.whatif.changes.linear import of_network

from lostflops.core.errors import UnknownCost
from lostflops.predict.graph.build import build
from lostflops.predict.graph.replay import replay
from lostflops.predict.scaling.growth import layout
from lostflops.predict.whatif.change import Facts
from lostflops.predict.whatif.changes import CHANGES
from lostflops.store.run import Run
from lostflops.testing import Model, Network, Straggler, SyntheticCluster, store

PLAIN = SyntheticCluster(ranks=4, steps=3, network=Network(gbs=20))
"""Communication of 0.6 ms beside 1 ms of compute: part of it is hidden, part is not."""
SLOW = replace(PLAIN, network=Network(gbs=5))
SPREAD = replace(PLAIN, ranks=8, ranks_per_host=4, network=Network(gbs=100, inter_gbs=20))
LATE = replace(PLAIN, network=Network(alpha=100_000, gbs=40), model=Model(buckets=4))
SHARDED = replace(PLAIN, sharding=3, model=Model(buckets=4, layers=8))
UNEVEN = replace(PLAIN, steps=4, stragglers=(Straggler(1, "slow_kernels", 1.3, steps=(10, 12)),))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    made = {}

    def of(cluster):
        if repr(cluster) not in made:
            made[repr(cluster)] = _recorded(cluster)
        return made[repr(cluster)]

    def _recorded(cluster):
        with Run.open(store(cluster.generate(), tmp_path_factory.mktemp("c") / "run", host_names=True)) as run:
            try:
                arranged = layout(run)
            except UnknownCost:
                arranged = None
            return build(run), arranged

    return of


_STEPS = {}


def true_step(cluster):
    if repr(cluster) not in _STEPS:
        _STEPS[repr(cluster)] = _true_step(cluster)
    return _STEPS[repr(cluster)]


def _true_step(cluster):
    return mean(step.wall for rank in cluster.generate().truth.ranks for step in rank.steps)


def with_buckets(cluster, buckets):
    return replace(cluster, model=replace(cluster.model, buckets=buckets))


def with_first(cluster, buckets, first):
    return replace(cluster, model=Model(layers=7, buckets=buckets, first_bucket=first))


def parameters(cluster):
    return tuple((f"layer{i}", cluster.model.gradient_bytes, None) for i in range(cluster.model.layers))


CASES = [
    ("bucket_mb", "1.9", PLAIN, with_buckets(PLAIN, 4)),
    ("bucket_mb", "100", PLAIN, with_buckets(PLAIN, 1)),
    ("bucket_mb", "1.9", SLOW, with_buckets(SLOW, 4)),
    ("bucket_mb", "3.8", with_buckets(SLOW, 4), with_buckets(SLOW, 2)),
    ("bucket_mb", "1.9", SPREAD, with_buckets(SPREAD, 4)),
    ("bucket_mb", "100", with_buckets(SLOW, 4), with_buckets(SLOW, 1)),
    ("first_bucket_mb", "5.7", with_first(SLOW, 4, 1), with_first(SLOW, 3, 3)),
    ("first_bucket_mb", "1.9", with_first(SLOW, 3, 3), with_first(SLOW, 4, 1)),
    ("first_bucket_mb", "7.5", with_first(PLAIN, 3, 1), with_first(PLAIN, 2, 4)),
    ("network.bandwidth", "2x", SLOW, replace(SLOW, network=Network(gbs=10))),
    ("network.bandwidth", "0.5x", PLAIN, replace(PLAIN, network=Network(gbs=10))),
    ("network.bandwidth", "2x", SPREAD, replace(SPREAD, network=Network(gbs=100, inter_gbs=40))),
    ("network.latency", "0.25x", LATE, replace(LATE, network=Network(alpha=25_000, gbs=40))),
    ("network.latency", "4x", PLAIN, replace(PLAIN, network=Network(alpha=48_000, gbs=20))),
    ("compression", "0.5x", SLOW, replace(SLOW, model=Model(gradient_bytes=1_000_000))),
    ("accumulate", "2", PLAIN, replace(PLAIN, microbatches=2)),
    ("accumulate", "4", SLOW, replace(SLOW, microbatches=4)),
    ("world_size", "8", replace(PLAIN, ranks_per_host=4), replace(PLAIN, ranks_per_host=4, ranks=8)),
    ("world_size", "2", SLOW, replace(SLOW, ranks=2)),
    ("world_size", "16", SPREAD, replace(SPREAD, ranks=16)),
    ("comm_streams", "2", LATE, replace(LATE, comm_streams=2)),
    ("comm_streams", "4", LATE, replace(LATE, comm_streams=4)),
    ("zero", "1", PLAIN, replace(PLAIN, sharding=1)),
    ("zero", "2", PLAIN, replace(PLAIN, sharding=2)),
    ("zero", "3", PLAIN, replace(PLAIN, sharding=3)),
    ("zero", "3", with_buckets(SLOW, 4), replace(with_buckets(SLOW, 4), sharding=3)),
    ("prefetch", "0", SHARDED, replace(SHARDED, prefetch=0)),
    ("prefetch", "2", SHARDED, replace(SHARDED, prefetch=2)),
    ("prefetch", "1", replace(SHARDED, prefetch=0), SHARDED),
    ("staleness", "unbounded", UNEVEN, replace(UNEVEN, synchronous=False)),
]


@pytest.mark.parametrize(("name", "value", "before", "after"), CASES, ids=[f"{c[0]}={c[1]}" for c in CASES])
@pytest.mark.few(8)
def test_predicted_as_generated(recorded, name, value, before, after):
    graph, arranged = recorded(before)
    change = next(change for change in CHANGES if change.name == name)
    facts = Facts(times=of_network(before.network), parameters=parameters(before), layout=arranged)
    edited = change.apply(graph, value, facts).graph
    edited.self_check()
    measured, true = true_step(before), true_step(after)
    predicted = measured * replay(edited).mean_step / replay(graph).mean_step
    assert predicted == pytest.approx(true, rel=0.02), f"measured {measured:,.0f}, gain {1 - true / measured:.1%}"


def test_cases_can_fail():
    """Most cases gain or lose more than they may be wrong by."""
    moved = [abs(1 - true_step(after) / true_step(before)) > 0.04 for *_, before, after in CASES]
    assert sum(moved) >= len(moved) * 0.7
