"""Every change on clusters that are generated both ways: what it predicts from one is what the other took."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.predict.changes.both_ways import error

from lostflops.predict.changes import data, device, launch, optimizer, overlap, precision, recompute, straggler, sync
from lostflops.testing import CAUSES, HostCosts, Losses, Model, Network, Straggler, SyntheticCluster

CLUSTER = SyntheticCluster(ranks=4, ranks_per_host=2, steps=4)
WITHIN = 0.02
H100_BF16, H100_TF32, A100_BF16 = 989.0, 494.7, 312.0
H100_GBS, A100_GBS = 3350, 2039


def scaled(model: Model, products: float, others: float, updates: float = 1.0) -> Model:
    kernels = tuple(
        replace(one, duration=round(one.duration * (products if one.dims else others))) for one in model.kernels
    )
    return replace(model, kernels=kernels, optimizer_duration=round(model.optimizer_duration * updates))


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("steps", [None, (12,)])
def test_stragglers(cause, steps, tmp_path):
    late = Straggler(2, cause, factor=1.5, delay=400_000, steps=steps)
    cluster = replace(CLUSTER, stragglers=(late,))
    assert abs(error(cluster, straggler.CHANGE, "removed", tmp_path, stragglers=())) < WITHIN


def test_a_straggler_of_a_pipeline(tmp_path):
    late = Straggler(5, "slow_kernels", factor=1.5)
    cluster = replace(CLUSTER, ranks=8, pipeline_parallel=2, microbatches=4, stragglers=(late,))
    assert abs(error(cluster, straggler.CHANGE, "removed", tmp_path, stragglers=())) < WITHIN


def test_data(tmp_path):
    cluster = replace(CLUSTER, losses=Losses(data=900_000))
    assert abs(error(cluster, data.CHANGE, "fixed", tmp_path, losses=Losses())) < WITHIN


def test_syncs(tmp_path):
    slow = HostCosts(dispatch=30_000)
    cluster = replace(CLUSTER, host=slow, losses=Losses(sync=True))
    assert abs(error(cluster, sync.CHANGE, "removed", tmp_path, losses=Losses())) < WITHIN


@pytest.mark.parametrize("dispatch", [15_000, 60_000])
def test_launches(dispatch, tmp_path):
    cluster = replace(CLUSTER, host=HostCosts(dispatch=dispatch, launch_call=9_000, tail=3_000))
    free = HostCosts(dispatch=0, launch_call=1, tail=0, launch_latency=1)
    assert abs(error(cluster, launch.CHANGE, "free", tmp_path, host=free)) < WITHIN


def test_precision(tmp_path):
    slower = scaled(CLUSTER.model, H100_BF16 / H100_TF32, 2)
    assert abs(error(CLUSTER, precision.CHANGE, "tf32", tmp_path, model=slower)) < WITHIN


def test_device(tmp_path):
    moving = H100_GBS / A100_GBS
    slower = scaled(CLUSTER.model, H100_BF16 / A100_BF16, moving, moving)
    assert abs(error(CLUSTER, device.CHANGE, "A100-SXM4-80GB", tmp_path, model=slower)) < WITHIN


def test_optimizer(tmp_path):
    many = Model(optimizer_kernels=20, optimizer_duration=8_000, fused=False)
    one = Model(optimizer_kernels=1, optimizer_duration=20 * 8_000 * 7 // 20)
    assert abs(error(replace(CLUSTER, model=many), optimizer.CHANGE, "fused", tmp_path, model=one)) < WITHIN


@pytest.mark.parametrize("host", [HostCosts(), HostCosts(dispatch=60_000)])
def test_recompute(host, tmp_path):
    cluster = replace(CLUSTER, host=host)
    assert abs(error(cluster, recompute.CHANGE, "on", tmp_path / "on", recompute=True)) < WITHIN
    again = replace(cluster, recompute=True)
    assert abs(error(again, recompute.CHANGE, "off", tmp_path / "off", recompute=False)) < WITHIN


def test_overlap(tmp_path):
    """Communication that hides entirely: as if the network took no time."""
    model = Model(optimizer_kernels=4, optimizer_duration=200_000, gradient_bytes=10_000_000)
    cluster = replace(CLUSTER, model=model, noise=0.0)
    instant = Network(1, 1_000_000, 1, 1_000_000)
    assert abs(error(cluster, overlap.CHANGE, "perfect", tmp_path, network=instant)) < WITHIN
