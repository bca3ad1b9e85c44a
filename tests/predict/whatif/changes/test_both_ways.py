"""Every change on clusters that are generated both ways: what it predicts from one is what the other took."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.predict.whatif.changes.both_ways import error

from lostflops.predict.whatif.changes import (
    data,
    device,
    launch,
    optimizer,
    overlap,
    precision,
    recompute,
    straggler,
    sync,
)
from lostflops.testing import CAUSES, HostCosts, Losses, Model, Network, Straggler, SyntheticCluster

CLUSTER = SyntheticCluster(ranks=3, steps=3)
WITHIN = 0.02
LAUNCH_BOUND = replace(CLUSTER, host=HostCosts(dispatch=60_000), model=Model(layers=8))
H100_BF16, H100_TF32 = 989.0, 494.7
H100_GBS, A100_GBS = 3350, 2039


def scaled(model: Model, products: float, others: float, updates: float = 1.0, *, least: int = 0) -> Model:
    """The model with other kernel times; `least` ns of each do not come from its work."""

    def scale(duration: int, factor: float) -> int:
        return round(least + (duration - least) * factor)

    kernels = tuple(
        replace(one, duration=scale(one.duration, products if one.dims else others)) for one in model.kernels
    )
    return replace(model, kernels=kernels, optimizer_duration=scale(model.optimizer_duration, updates))


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("steps", [None, pytest.param((12,), marks=pytest.mark.slow)])
@pytest.mark.few(2)
def test_stragglers(cause, steps):
    late = Straggler(1, cause, factor=1.5, delay=3_000_000, steps=steps)
    assert abs(error(replace(CLUSTER, stragglers=(late,)), straggler.CHANGE, "1", stragglers=())) < WITHIN


@pytest.mark.slow
def test_a_straggler_of_a_pipeline():
    late = Straggler(5, "slow_kernels", factor=1.5)
    cluster = replace(CLUSTER, ranks=8, pipeline_parallel=2, microbatches=4, stragglers=(late,))
    assert abs(error(cluster, straggler.CHANGE, "5", stragglers=())) < WITHIN


def test_data():
    cluster = replace(CLUSTER, losses=Losses(data=3_000_000))
    assert abs(error(cluster, data.CHANGE, "fixed", losses=Losses())) < WITHIN


def test_syncs():
    slow = HostCosts(dispatch=15_000)
    cluster = replace(CLUSTER, host=slow, losses=Losses(sync=True))
    assert abs(error(cluster, sync.CHANGE, "removed", losses=Losses())) < WITHIN


def test_launches():
    free = HostCosts(dispatch=0, launch_call=1, tail=0, launch_latency=1)
    assert abs(error(LAUNCH_BOUND, launch.CHANGE, "free", host=free)) < WITHIN


def test_precision():
    slower = scaled(CLUSTER.model, H100_BF16 / H100_TF32, 2)
    assert abs(error(CLUSTER, precision.CHANGE, "tf32", model=slower)) < WITHIN


def test_device():
    """Products slow down as the best measured rates say, of which training reaches 60 to 93% on an H100 and 60 to 100%
    on an A100, all other kernels by memory bandwidth."""
    moving = H100_GBS / A100_GBS
    slower = scaled(CLUSTER.model, 0.765 * 794 / (0.8 * 271), moving, moving, least=2_000)
    assert abs(error(CLUSTER, device.CHANGE, "A100-SXM4-80GB", model=slower)) < WITHIN


def test_optimizer():
    many = Model(optimizer_kernels=20, optimizer_duration=8_000, fused=False)
    one = Model(optimizer_kernels=1, optimizer_duration=20 * 8_000 * 7 // 20)
    assert abs(error(replace(CLUSTER, model=many), optimizer.CHANGE, "fused", model=one)) < WITHIN


@pytest.mark.parametrize("cluster", [CLUSTER, LAUNCH_BOUND])
def test_recompute(cluster):
    assert abs(error(cluster, recompute.CHANGE, "on", recompute=True)) < WITHIN
    again = replace(cluster, recompute=True)
    assert abs(error(again, recompute.CHANGE, "off", recompute=False)) < WITHIN


def test_overlap():
    """Communication that hides entirely: as if the network took no time."""
    model = Model(optimizer_kernels=4, optimizer_duration=200_000, gradient_bytes=4_000_000)
    cluster = replace(CLUSTER, model=model, noise=0.0)
    instant = Network(1, 1_000_000, 1, 1_000_000)
    assert abs(error(cluster, overlap.CHANGE, "perfect", network=instant)) < WITHIN
