"""Collectives: when members start and end, what they are called, and pipelines."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from lostflops.testing import Kernel, Model, Network, SyntheticCluster
from lostflops.testing.program import microbatch_order
from lostflops.testing.strategies import small_clusters


@given(small_clusters())
@settings(max_examples=60, deadline=None)
def test_nobody_ends_before_everybody_has_started(cluster: SyntheticCluster) -> None:
    for collective in cluster.generate().truth.collectives:
        last = max(collective.arrivals.values())
        assert set(collective.arrivals) == set(collective.ends) == set(collective.members)
        assert set(collective.ends.values()) == {last + collective.transfer}
        assert collective.transfer > 0
        assert collective.late_rank == min(r for r, start in collective.arrivals.items() if start == last)


@given(small_clusters())
@settings(max_examples=30, deadline=None)
def test_collectives_of_a_group_are_counted_alike_everywhere(cluster: SyntheticCluster) -> None:
    for collective in cluster.generate().truth.collectives:
        if collective.op == "all_reduce":
            assert len(set(collective.seqs.values())) == 1
    truth = replace(cluster, tensor_parallel=1, pipeline_parallel=1).generate().truth
    assert [c.ordinal for c in truth.collectives] == list(range(len(truth.collectives)))
    assert all(set(c.seqs.values()) == {c.ordinal + 1} for c in truth.collectives)


def test_of_equally_late_ranks_the_lowest_is_named() -> None:
    truth = SyntheticCluster(ranks=4, noise=0.0).generate().truth
    assert {c.late_rank for c in truth.collectives} == {0}
    assert truth.lines["comm.wait"] == 0


def test_alpha_beta_time_of_a_ring_all_reduce() -> None:
    network = Network(alpha=1_000, gbs=10, inter_alpha=5_000, inter_gbs=2)
    model = Model(layers=1, buckets=1, gradient_bytes=4_000)
    inside = SyntheticCluster(ranks=4, network=network, model=model).generate().truth
    across = SyntheticCluster(ranks=4, ranks_per_host=2, network=network, model=model).generate().truth
    assert {c.transfer for c in inside.collectives} == {1_000 + 2 * 3 * 4_000 // (4 * 10)}
    assert {c.transfer for c in across.collectives} == {5_000 + 2 * 3 * 4_000 // (4 * 2)}


def test_early_buckets_are_hidden_and_the_last_is_not() -> None:
    cluster = SyntheticCluster(ranks=2, noise=0.0, model=Model(layers=4, buckets=4))
    rank = cluster.generate().truth.ranks[0]
    transfer = 12_000 + 2_000_000 // 100
    assert rank.device_window.comm_kernels == 4 * 3
    assert rank.lines["comm.transfer"] == 3 * transfer
    assert rank.device_window.hidden_comm_ns == 3 * 3 * transfer


def test_groups_of_tensor_and_data_parallel_ranks() -> None:
    truth = SyntheticCluster(ranks=8, tensor_parallel=2, pipeline_parallel=2, microbatches=2).generate().truth
    members = {c.members for c in truth.collectives if c.op == "all_reduce"}
    tensor = {(0, 1), (2, 3), (4, 5), (6, 7)}
    data = {(0, 2), (1, 3), (4, 6), (5, 7)}
    assert members == tensor | data
    pairs = {c.members for c in truth.collectives if c.op == "send_recv"}
    assert pairs == {pair for a, b in ((0, 4), (1, 5), (2, 6), (3, 7)) for pair in ((a, b), (b, a))}


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_bubble_of_an_even_pipeline(schedule: str) -> None:
    """(p-1)/(m+p-1) of the time, when transfers, launches and the optimizer cost next to nothing."""
    stages, batches = 4, 8
    cluster = SyntheticCluster(
        ranks=stages,
        pipeline_parallel=stages,
        microbatches=batches,
        schedule=schedule,  # type: ignore[arg-type]
        steps=1,
        noise=0.0,
        network=Network(alpha=1, gbs=1_000_000),
        model=Model(layers=1, buckets=1, kernels=(Kernel(10_000_000),), optimizer_duration=1),
    )
    truth = cluster.generate().truth
    work = truth.lines["compute"]
    longest = max(rank.wall for rank in truth.ranks)
    bubble = 1 - work / (stages * longest)
    assert bubble == pytest.approx((stages - 1) / (batches + stages - 1), abs=0.002)
    assert truth.lines["comm.bubble"] > 0
    assert truth.lines["comm.wait"] == 0


def test_1f1b_order() -> None:
    order = microbatch_order("1f1b", 1, 3, 3)
    assert order == [("F", 0), ("F", 1), ("B", 0), ("F", 2), ("B", 1), ("B", 2)]
