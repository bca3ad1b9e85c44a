"""Replays of ranks with a device: synthetic clusters to the nanosecond, or nearly, and recorded ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lostflops import Run
from lostflops.graph.build import build
from lostflops.graph.replay import Schedule, replay
from lostflops.testing import (
    Clock,
    HostCosts,
    Kernel,
    Losses,
    LostRecords,
    Model,
    Straggler,
    SyntheticCluster,
    store,
)

SHORT = Model(kernels=(Kernel(2_000, (64, 64, 64)), Kernel(1_000), Kernel(3_000, (64, 64, 64))))

CLUSTERS = {
    "ddp": SyntheticCluster(ranks=4),
    "tp": SyntheticCluster(ranks=4, tensor_parallel=2),
    "tp x pp x dp": SyntheticCluster(ranks=8, tensor_parallel=2, pipeline_parallel=2, microbatches=4),
    "gpipe": SyntheticCluster(ranks=4, pipeline_parallel=4, microbatches=4, schedule="gpipe"),
    "sync": SyntheticCluster(ranks=2, losses=Losses(sync=True)),
    "data": SyntheticCluster(ranks=2, losses=Losses(data=3_000_000, copy_bytes=2_000_000, memset_bytes=1_000)),
    "alloc": SyntheticCluster(ranks=2, losses=Losses(alloc=600_000)),
    "python": SyntheticCluster(ranks=2, losses=Losses(python=900_000)),
    "launch-bound": SyntheticCluster(ranks=2, model=SHORT, losses=Losses(launch_factor=4)),
    "launch-bound host": SyntheticCluster(ranks=2, model=SHORT, host=HostCosts(between_ops=7_000)),
    "two compute streams": SyntheticCluster(ranks=4, compute_streams=2),
    "kernel gaps": SyntheticCluster(ranks=2, kernel_gap=1_500),
    "slow kernels": SyntheticCluster(ranks=4, stragglers=(Straggler(2, "slow_kernels", factor=1.5),)),
    "late data": SyntheticCluster(ranks=4, stragglers=(Straggler(1, "late_data", delay=2_000_000),)),
    "host stall": SyntheticCluster(ranks=4, stragglers=(Straggler(3, "host_stall", delay=2_000_000),)),
    "allocation": SyntheticCluster(ranks=4, stragglers=(Straggler(0, "allocation", delay=2_000_000),)),
    "clocks": SyntheticCluster(ranks=4, ranks_per_host=2, clocks={1: Clock(offset=5_000_000)}),
    "lost launches": SyntheticCluster(ranks=4, lost=LostRecords(launches=0.02)),
}


def replayed(cluster: SyntheticCluster, folder: Path) -> Schedule:
    with Run.open(store(cluster.generate(), folder / "run")) as run:
        return replay(build(run))


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_synthetic_cluster_replays_as_it_ran(name: str, tmp_path: Path) -> None:
    done = replayed(CLUSTERS[name], tmp_path)
    graph = done.graph
    np.testing.assert_allclose(done.step_times, graph.steps.measured, rtol=1e-3)
    late = np.abs(done.start - graph.measured.start)
    assert late.max() <= 1e-3 * graph.steps.measured.mean()
