from __future__ import annotations

import pytest

from lostflops.predict.costs.times import CommGroup
from lostflops.predict.estimate.description import ModelDescription, PlannedJob
from lostflops.predict.estimate.traffic import Transfer, traffic

MODEL = ModelDescription(layers=4, hidden=64, heads=4, ffn=256, vocabulary=1000)
PARAMETERS = 2 * 64_000 + 64 + 4 * (2 * 64 + 4 * 64 * 64 + 3 * 64 * 256)


def moved(job: PlannedJob, dimension: str = "dp", stage: int = 0, per_host: int = 8) -> list[Transfer]:
    return [one for one in traffic(MODEL, job, stage, per_host) if one.dimension == dimension]


def sent(job: PlannedJob) -> float:
    """Bytes that a rank sends around rings, in those of one all-gather of all parameters."""
    factor = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
    return sum(one.total * factor[one.op] for one in moved(job)) / (4 * PARAMETERS)


@pytest.mark.parametrize(("zero", "volume"), [(0, 2), (1, 2), (2, 2), (3, 3)])
def test_zero_3_moves_half_as_much_again_and_no_other_stage_more(zero: int, volume: float) -> None:
    assert sent(PlannedJob(sequence=8, dp=4, zero=zero, dtype="fp32")) == pytest.approx(volume, rel=0.001)


@pytest.mark.parametrize(("zero", "volume"), [(0, 2), (1, 2), (2, 4), (3, 9)])
def test_accumulation_repeats_what_is_not_kept(zero: int, volume: float) -> None:
    assert sent(PlannedJob(sequence=8, dp=4, zero=zero, dtype="fp32", batch=12)) == pytest.approx(volume, rel=0.001)


def test_gradients_travel_in_the_dtype_that_is_asked_for() -> None:
    half = PlannedJob(sequence=8, dp=4, reduce_dtype="bf16")
    assert sum(one.total for one in moved(half)) == pytest.approx(2 * PARAMETERS, rel=0.001)


def test_tensor_parallelism_sums_twice_a_layer_and_pass() -> None:
    (one,) = moved(PlannedJob(sequence=8, microbatch=3, tp=2, batch=6), "tp")
    assert (one.op, one.size, one.group, one.blocking) == ("all_reduce", 3 * 8 * 64 * 2, CommGroup(2, 1), True)
    assert one.count == (4 * 2 * 2 + 2) * 2
    assert moved(PlannedJob(sequence=8, tp=2, recompute="full"), "tp")[0].count == 4 * 3 * 2 + 2


def test_stages_send_activations_to_neighbours() -> None:
    job = PlannedJob(sequence=8, pp=4, batch=5)
    counts = [moved(job, "pp", stage)[0].count for stage in range(4)]
    assert counts == [10, 20, 20, 10]


def test_groups_fill_hosts_in_the_order_of_the_mesh() -> None:
    job = PlannedJob(sequence=8, tp=4, dp=4, pp=2)
    groups = {one.dimension: one.group for one in traffic(MODEL, job, 0, 8)}
    assert groups == {"tp": CommGroup(4, 1), "dp": CommGroup(4, 2), "pp": CommGroup(2, 2)}


def test_replicas_reduce_what_is_left_after_sharding() -> None:
    shards, _, across = moved(PlannedJob(sequence=8, dp=8, zero=3, replicas=2, dtype="fp32"))
    assert (shards.group, across.group) == (CommGroup(4, 1), CommGroup(2, 1))
    assert across.total == pytest.approx(4 * PARAMETERS / 4, rel=0.001)


def test_context_parallelism_gathers_keys_and_values() -> None:
    gathered, back = moved(PlannedJob(sequence=8, cp=2), "cp")
    assert (gathered.op, gathered.size, gathered.count) == ("all_gather", 8 * 2 * 64 * 2, 4 * 2)
    assert (back.op, back.count) == ("reduce_scatter", 4)
    assert moved(PlannedJob(sequence=8, cp=2))[0].group == CommGroup(2, 1)
