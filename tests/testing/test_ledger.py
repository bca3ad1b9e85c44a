"""The truth closes, and a brute-force reading of the written traces agrees with it."""

from dataclasses import asdict, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from tests.testing import brute_force

from lostflops.testing import (
    LINES,
    Clock,
    HostCosts,
    Kernel,
    Losses,
    LostRecords,
    Model,
    Network,
    Straggler,
    SyntheticCluster,
)
from lostflops.testing.strategies import small_clusters

TINY = SyntheticCluster(
    ranks=2,
    steps=2,
    model=Model(
        layers=2,
        kernels=(Kernel(300, (4, 4, 4)), Kernel(120)),
        optimizer_kernels=1,
        optimizer_duration=150,
        gradient_bytes=8_000,
        activation_bytes=4_000,
    ),
    host=HostCosts(60, 40, 15, 20, 35, 90, 30),
    network=Network(90, 100, 200, 50),
)
ALL_LOSSES = Losses(data=1_500, copy_bytes=2_500, memset_bytes=90_000, sync=True, alloc=700, python=1_200)

TINY_CLUSTERS = {
    "data parallel": TINY,
    "launch bound": replace(TINY, losses=Losses(launch_factor=8)),
    "all losses": replace(TINY, losses=ALL_LOSSES, kernel_gap=25),
    "streams slower than launches": replace(TINY, kernel_gap=500, losses=Losses(launch_factor=6)),
    "waits in two groups": replace(
        TINY,
        ranks=4,
        tensor_parallel=2,
        stragglers=(Straggler(1, "host_stall", delay=4_000), Straggler(2, "slow_kernels", factor=4.0)),
    ),
    "straggler": replace(TINY, ranks=3, stragglers=(Straggler(1, "slow_kernels", factor=2.0),)),
    "two hosts": replace(TINY, ranks=3, ranks_per_host=2),
    "two compute streams": replace(TINY, compute_streams=2, losses=Losses(sync=True)),
    "tensor parallel": replace(TINY, ranks=4, tensor_parallel=2, losses=ALL_LOSSES),
    "pipeline 1f1b": replace(TINY, ranks=3, pipeline_parallel=3, microbatches=3),
    "pipeline gpipe": replace(TINY, ranks=4, pipeline_parallel=2, microbatches=2, schedule="gpipe", losses=ALL_LOSSES),
}


@pytest.mark.parametrize("cluster", TINY_CLUSTERS.values(), ids=TINY_CLUSTERS.keys())
@pytest.mark.few(3)
def test_brute_force_agrees_with_the_truth(cluster: SyntheticCluster) -> None:
    run = cluster.generate()
    documents = [brute_force.load(trace.text()) for trace in run.traces]
    for rank in run.truth.ranks:
        expected = {line: ns for line, ns in rank.lines.items() if ns and line != "comm.wait"}
        expected |= {f"comm.wait for {late}": ns for late, ns in rank.late_ranks.items()}
        assert brute_force.ledger(documents, rank.rank) == expected


def test_tiny_clusters_reach_every_line_that_can_be_reached() -> None:
    reached = {line for c in TINY_CLUSTERS.values() for line, ns in c.generate().truth.lines.items() if ns}
    assert reached == set(LINES) - {"idle.compile", "idle.bubble", "unexplained"}


@given(small_clusters(lost=True))
@settings(max_examples=120, deadline=None)
def test_ledger_closes(cluster: SyntheticCluster) -> None:
    truth = cluster.generate().truth
    for rank in truth.ranks:
        for step in rank.steps:
            assert set(step.lines) == set(LINES)
            assert min(step.lines.values()) >= 0
            assert sum(step.lines.values()) == step.wall > 0
            assert sum(step.late_ranks.values()) == step.lines["comm.wait"]
            assert rank.rank not in step.late_ranks
        assert all(before.stop == after.start for before, after in pairwise(rank.steps))
        assert all(before.stop == after.start for before, after in pairwise(rank.segments))
        assert sum(rank.own_lines.values()) == rank.own_wall
    assert sum(truth.lines.values()) == truth.wall


@given(small_clusters())
@settings(max_examples=40, deadline=None)
def test_without_losses_the_device_window_is_the_ledger(cluster: SyntheticCluster) -> None:
    """One step, no drift: the window of steps is that of device events, and the two are computed apart."""
    truth = replace(cluster, steps=1, clocks={0: Clock(offset=12_345)}).generate().truth
    for rank in truth.ranks:
        lines, totals = rank.lines, rank.device_window
        assert totals.compute_ns == lines["compute"]
        assert totals.exposed_comm_ns == sum(ns for line, ns in lines.items() if line.startswith("comm."))
        assert totals.exposed_copy_ns == lines["copy"]
        assert totals.idle_ns == sum(ns for line, ns in lines.items() if line.startswith("idle."))
        assert totals.window_ns == rank.wall


@pytest.mark.parametrize("lost", [LostRecords(), LostRecords(kernels=0.3)])
def test_device_window_counts_what_is_written(lost: LostRecords) -> None:
    run = replace(TINY_CLUSTERS["all losses"], lost=lost, clocks={0: Clock(777, 50.0)}).generate()
    for trace, rank in zip(run.traces, run.truth.ranks, strict=True):
        events = brute_force.device_events(brute_force.load(trace.text()))
        start, stop = min(e["ts"] for e in events), max(e["end"] for e in events)
        at = [{brute_force.role(e) for e in events if e["ts"] <= t < e["end"]} for t in range(start, stop)]
        assert asdict(rank.device_window) == {
            "kernels": sum(e["cat"] == "kernel" for e in events),
            "copies": sum(e["cat"] != "kernel" for e in events),
            "comm_kernels": sum(brute_force.role(e) == "comm" for e in events),
            "window_ns": len(at),
            "busy_ns": sum(bool(roles) for roles in at),
            "compute_ns": sum("compute" in roles for roles in at),
            "comm_ns": sum("comm" in roles for roles in at),
            "hidden_comm_ns": sum({"comm", "compute"} <= roles for roles in at),
            "exposed_comm_ns": sum("comm" in roles and "compute" not in roles for roles in at),
            "exposed_copy_ns": sum(roles == {"copy"} for roles in at),
            "idle_ns": sum(not roles for roles in at),
        }
