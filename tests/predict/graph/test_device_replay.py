"""Replays of ranks with a device: synthetic clusters as they ran and as they would have run, and recorded ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.shared_data import TRACES, needs_traces

from lostflops import Run
from lostflops.ingest import ingest
from lostflops.predict.graph.build import build
from lostflops.predict.graph.editing import retime_graph, scale_rows
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import Because, TaskGraph, TaskKind
from lostflops.testing import (
    Clock,
    HostCosts,
    Kernel,
    Losses,
    LostRecords,
    Model,
    Network,
    Straggler,
    SyntheticCluster,
    store,
)

SHORT = Model(kernels=(Kernel(2_000, (64, 64, 64)), Kernel(1_000), Kernel(3_000, (64, 64, 64))))
HIDDEN = Model(layers=8, gradient_bytes=400_000, buckets=4)
OFTEN = {
    "ddp": SyntheticCluster(ranks=2, steps=2),
    "tp x pp": SyntheticCluster(ranks=4, steps=2, tensor_parallel=2, pipeline_parallel=2, microbatches=2),
    "sync, data, alloc": SyntheticCluster(
        ranks=2,
        steps=2,
        losses=Losses(data=3_000_000, copy_bytes=2_000_000, memset_bytes=1_000, sync=True, alloc=600_000),
    ),
    "launch-bound": SyntheticCluster(ranks=2, steps=2, model=SHORT, losses=Losses(launch_factor=4, python=900_000)),
    "two compute streams, gaps": SyntheticCluster(ranks=2, steps=2, compute_streams=2, kernel_gap=1_500),
    "straggler": SyntheticCluster(ranks=2, steps=2, stragglers=(Straggler(1, "host_stall", delay=2_000_000),)),
}
SELDOM = {
    "gpipe": SyntheticCluster(ranks=4, pipeline_parallel=4, microbatches=4, schedule="gpipe"),
    "tp x pp x dp": SyntheticCluster(ranks=8, tensor_parallel=2, pipeline_parallel=2, microbatches=4),
    "launch-bound host": SyntheticCluster(ranks=2, model=SHORT, host=HostCosts(between_ops=7_000)),
    "slow kernels": SyntheticCluster(ranks=4, stragglers=(Straggler(2, "slow_kernels", factor=1.5),)),
    "more work": SyntheticCluster(ranks=4, stragglers=(Straggler(2, "more_work", factor=1.5),)),
    "late data": SyntheticCluster(ranks=4, stragglers=(Straggler(1, "late_data", delay=2_000_000),)),
    "allocation": SyntheticCluster(ranks=4, stragglers=(Straggler(0, "allocation", delay=2_000_000),)),
    "clocks": SyntheticCluster(ranks=4, ranks_per_host=2, clocks={1: Clock(offset=5_000_000)}),
    "lost launches": SyntheticCluster(ranks=4, lost=LostRecords(launches=0.02)),
}


def graph_of(cluster: SyntheticCluster, folder: Path) -> TaskGraph:
    with Run.open(store(cluster.generate(), folder)) as run:
        return build(run)


@pytest.mark.parametrize("name", [*OFTEN, *(pytest.param(name, marks=pytest.mark.slow) for name in SELDOM)])
@pytest.mark.few(2)
def test_a_synthetic_cluster_replays_as_it_ran(name: str, tmp_path: Path) -> None:
    graph = graph_of((OFTEN | SELDOM)[name], tmp_path / "run")
    done = replay(graph)
    np.testing.assert_allclose(done.step_times, graph.steps.measured, rtol=1e-3)
    assert np.abs(done.start - graph.measured.start).max() <= 1e-3 * graph.steps.measured.mean()


CLOSE = Network(12_000, 200)
"""With it a reduction ends between two kernels of another stream, 0.3 us before the second starts."""


def slower_network(cluster: SyntheticCluster) -> SyntheticCluster:
    return replace(cluster, network=Network(120_000, cluster.network.gbs // 10, 250_000, 2))


def slower_transfers(graph: TaskGraph) -> TaskGraph:
    return retime_graph(graph, transfer=graph.meetings.transfer * 10)


def quicker_model(cluster: SyntheticCluster) -> SyntheticCluster:
    kernels = tuple(replace(kernel, duration=kernel.duration // 5) for kernel in cluster.model.kernels)
    duration = cluster.model.optimizer_duration // 5
    return replace(cluster, model=replace(cluster.model, kernels=kernels, optimizer_duration=duration))


def quicker_kernels(graph: TaskGraph) -> TaskGraph:
    return retime_graph(graph, duration=scale_rows(graph.tasks.duration, graph.tasks.kind == TaskKind.KERNEL, 0.2))


def slower_host(cluster: SyntheticCluster) -> SyntheticCluster:
    return replace(cluster, host=replace(cluster.host, dispatch=16_000, launch_call=12_000, tail=4_000))


def slower_calls(graph: TaskGraph) -> TaskGraph:
    host = np.isin(graph.tasks.kind, (TaskKind.HOST, TaskKind.LAUNCH))
    gap = scale_rows(graph.tasks.gap, host | (graph.tasks.kind == TaskKind.SYNC), 8)
    return retime_graph(graph, duration=scale_rows(graph.tasks.duration, host, 8), gap=gap)


TP = SyntheticCluster(ranks=2, steps=2, tensor_parallel=2)
ASKED = {
    "hidden collectives, slower network": (
        SyntheticCluster(ranks=2, steps=2, model=HIDDEN),
        slower_network,
        slower_transfers,
    ),
    "tp, slower network": (TP, slower_network, slower_transfers),
    "sync, quicker kernels": (
        SyntheticCluster(ranks=2, steps=2, losses=Losses(sync=True)),
        quicker_model,
        quicker_kernels,
    ),
    "alloc, quicker kernels": (
        SyntheticCluster(ranks=2, steps=2, losses=Losses(alloc=600_000)),
        quicker_model,
        quicker_kernels,
    ),
    "sync, slower host": (SyntheticCluster(ranks=2, steps=2, losses=Losses(sync=True)), slower_host, slower_calls),
    "two compute streams, slower network": (
        SyntheticCluster(ranks=2, steps=2, compute_streams=2, kernel_gap=1_500, network=CLOSE),
        slower_network,
        slower_transfers,
    ),
    "full queues, quicker kernels": (SyntheticCluster(ranks=2, steps=3), quicker_model, quicker_kernels),
}


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.few(2)
def test_waits_are_edges_so_that_other_times_give_what_would_have_been(name: str, tmp_path: Path) -> None:
    """A wait that was taken for a duration or a gap replays as recorded just as well, and shows only here."""
    cluster, other, change = ASKED[name]
    recorded = graph_of(cluster, tmp_path / "before")
    truth = graph_of(other(cluster), tmp_path / "after").steps.measured.mean()
    assert abs(truth / recorded.steps.measured.mean() - 1) > 0.05
    assert replay(change(recorded)).mean_step == pytest.approx(truth, rel=0.02)


def test_every_inferred_delay_is_short(tmp_path: Path) -> None:
    graph = graph_of(OFTEN["sync, data, alloc"], tmp_path / "run")
    assert set(graph.edges.because.tolist()) == {Because.LAUNCH, Because.SYNC, Because.STREAM}
    assert graph.edges.delay[graph.edges.because != Because.LAUNCH].max() <= 20_000
    assert (graph.tasks.duration[graph.tasks.kind == TaskKind.SYNC] <= 302_000).all()


def recorded_graph(files: list[Path], folder: Path) -> TaskGraph:
    ingest(files, folder, workers=1)
    with Run.open(folder) as run:
        return build(run)


def assert_replays(graph: TaskGraph) -> None:
    done = replay(graph)
    mean = graph.steps.measured.mean()
    assert done.mean_step == pytest.approx(mean, rel=0.002)
    assert np.median(np.abs(done.start - graph.measured.start)) <= 0.005 * mean


@needs_traces
def test_a_recorded_run_with_a_straggler_replays(tmp_path: Path) -> None:
    """Rank 2 sleeps for a second in each step, and the others wait for it: without it, steps are as short as it."""
    files = sorted((TRACES / "meta-pytorch__torchrec/sst_long_a2a_optimizer_2").glob("*.gz"))
    graph = recorded_graph(files, tmp_path / "run")
    assert_replays(graph)
    sleeps = (graph.tasks.kind == TaskKind.HOST) & (graph.tasks.duration > 500_000_000)
    assert graph.rank[sleeps].tolist() == [2, 2, 2]
    awake = replay(retime_graph(graph, duration=np.where(sleeps, 0, graph.tasks.duration)))
    without = graph.steps.measured.mean() - graph.tasks.duration[sleeps].mean()
    # Ranks 0, 1 and 3 allocate and run Python for longer than rank 2, which its sleep had hidden.
    assert without < awake.mean_step < 1.07 * without


RECORDED = {
    "modded-nanogpt": "KellerJordan__modded-nanogpt/2025-12-11_NorMuonOptimsAndFixes/*.gz",
    "megatron tp8": "astra-sim__astra-sim/megatron-tp8/megatron_kineto*.gz",
    "Megatron-LM tp2": "NVIDIA__Megatron-LM/tp2/rank*.gz",
    "dlrm": "facebookresearch__param/dlrm_kineto/*.gz",
    "HTA": "facebookresearch__HolisticTraceAnalysis/trace_filter*.gz",
    "kineto": "pytorch__kineto/*num_workers_0*.gz",
    **{
        f"torchrec {name}": f"meta-pytorch__torchrec/sst_{name}/*.gz"
        for name in (
            "long_a2a_optimizer",
            "long_a2a_optimizer_4",
            "long_a2a_optimizer_5",
            "long_a2a_optimizer_qcomm_trace",
            "sleep_pl_dense_after_backward_2",
        )
    },
}


@needs_traces
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) for name in RECORDED if name != "dlrm"])
def test_recorded_runs_replay(name: str, tmp_path: Path) -> None:
    assert_replays(recorded_graph(sorted(TRACES.glob(RECORDED[name])), tmp_path / "run"))


@needs_traces
def test_a_recorded_run_of_eight_ranks_replays(tmp_path: Path) -> None:
    assert_replays(recorded_graph(sorted(TRACES.glob(RECORDED["dlrm"])), tmp_path / "run"))
