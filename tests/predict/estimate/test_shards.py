"""What ranks hold, together and each: for any model and any degrees."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lostflops.predict.estimate.demand import estimate_demand
from lostflops.predict.estimate.description import ModelDescription, PlannedJob
from lostflops.predict.estimate.memory import activations, memory
from lostflops.predict.estimate.tensors import list_stage_shards, stage_layers, tensors
from lostflops.predict.estimate.work import model_flops, product_flops, work

DEGREES = (1, 2, 4)


@st.composite
def models(draw: st.DrawFn) -> ModelDescription:
    keys = draw(st.sampled_from([4, 8]))
    return ModelDescription(
        layers=draw(st.integers(4, 9)),
        hidden=draw(st.integers(1, 40)) * 8,
        heads=keys * draw(st.sampled_from([1, 2])),
        kv_heads=keys,
        head_dim=draw(st.sampled_from([8, 24])),
        ffn=draw(st.integers(1, 60)) * 4,
        gated=draw(st.booleans()),
        vocabulary=draw(st.integers(5, 999)),
        tied=draw(st.booleans()),
        norm=draw(st.sampled_from(["rms", "layer"])),
        qkv_bias=draw(st.booleans()),
        output_bias=draw(st.booleans()),
        ffn_bias=draw(st.booleans()),
        qk_norm=draw(st.booleans()),
        positions=draw(st.sampled_from([0, 33 * 64])),
    )


@st.composite
def jobs(draw: st.DrawFn) -> PlannedJob:
    dp, microbatch = draw(st.sampled_from([1, 2, 3, 8])), draw(st.integers(1, 3))
    return PlannedJob(
        sequence=draw(st.integers(1, 50)) * 4,
        microbatch=microbatch,
        batch=dp * microbatch * draw(st.integers(1, 3)),
        dp=dp,
        cp=draw(st.sampled_from(DEGREES)),
        tp=draw(st.sampled_from(DEGREES)),
        pp=draw(st.sampled_from(DEGREES)),
        zero=draw(st.integers(0, 3)),
        precision=draw(st.sampled_from(["autocast", "master", "pure"])),
        recompute=draw(st.sampled_from(["none", "selective", "full"])),
        optimizer=draw(st.sampled_from(["adamw", "sgd", "sgd-momentum"])),
        compiled=draw(st.sampled_from([None, True, False])),
    )


def elements(model: ModelDescription) -> int:
    return sum(one.elements * (model.layers if one.place == "layer" else 1) for one in tensors(model))


@given(models(), jobs())
@settings(max_examples=60, deadline=None)
def test_shards_are_the_whole(model: ModelDescription, job: PlannedJob) -> None:
    """What every rank of tensor parallelism has of what is sharded, once of what is not, is the model."""
    total = 0
    for stage in range(job.pp):
        for tp_rank in range(job.tp):
            for part in list_stage_shards(model, job, stage, tp_rank):
                is_copy = part.tensor.name == "embedding" and stage > 0
                if not is_copy and (part.tensor.split is not None or tp_rank == 0):
                    total += part.elements
    assert total == elements(model)
    assert sum(stage_layers(model, job)) == model.layers


@given(models(), jobs())
@settings(max_examples=60, deadline=None)
def test_ranks_of_zero_3_hold_the_model_together(model: ModelDescription, job: PlannedJob) -> None:
    sharded, whole = msgspec.structs.replace(job, zero=3), msgspec.structs.replace(job, zero=0)
    for stage in range(job.pp):
        ranks = [memory(model, sharded, stage, dp_rank=rank) for rank in range(job.shards)]
        one = memory(model, whole, stage)
        assert sum(rank.parameters for rank in ranks) == one.parameters
        assert sum(rank.gradients for rank in ranks) == one.gradients
        assert sum(rank.optimizer for rank in ranks) == one.optimizer
        assert ranks[0].parameters == max(rank.parameters for rank in ranks)


@given(models(), jobs())
@settings(max_examples=60, deadline=None)
def test_a_higher_stage_of_zero_never_holds_more(model: ModelDescription, job: PlannedJob) -> None:
    by_stage = [memory(model, msgspec.structs.replace(job, zero=zero), 0) for zero in range(4)]
    exact = [(one.parameters, one.gradients, one.optimizer) for one in by_stage]
    for lower, higher in pairwise(exact):
        assert all(after <= before for before, after in zip(lower, higher, strict=True))
    assert exact[1][:2] == exact[0][:2]
    assert exact[2][0] == exact[0][0]


@given(models(), jobs())
@settings(max_examples=60, deadline=None)
def test_model_flops_do_not_know_degrees(model: ModelDescription, job: PlannedJob) -> None:
    alone = msgspec.structs.replace(job, dp=1, cp=1, tp=1, pp=1, zero=0, recompute="none")
    assert model_flops(model, job) == model_flops(model, alone)
    forward = sum(one.flops for stage in range(job.pp) for one in work(model, job, stage).products)
    together = forward * job.tp * job.cp * job.dp * job.microbatches
    if model.vocabulary % job.tp == 0:
        assert together == pytest.approx(product_flops(model, job))
    else:
        assert together > product_flops(model, job)


@given(models(), jobs())
@settings(max_examples=60, deadline=None)
def test_recomputation_only_takes_activations_away(model: ModelDescription, job: PlannedJob) -> None:
    kept = {
        again: estimate_demand(model, msgspec.structs.replace(job, recompute=again), 8).stages[0].memory.activations
        for again in ("none", "selective", "full")
    }
    none, selective, full = kept["none"], kept["selective"], kept["full"]
    assert none
    assert selective
    assert full
    assert selective.low == full.low
    assert selective.high >= full.high
    if stage_layers(model, job)[0] > 1:
        assert full.high <= none.high


def test_more_ranks_than_experts_share_rows() -> None:
    """No rank is left without, so that memory falls on."""
    model = ModelDescription(layers=2, hidden=64, heads=4, ffn=128, vocabulary=128, experts=4, experts_per_token=2)
    held_by = [memory(model, PlannedJob(sequence=8, dp=ranks, zero=3), 0).parameters for ranks in (1, 4, 16, 64)]
    assert [held_by[0] / each for each in held_by] == pytest.approx([1, 4, 16, 64], rel=0.1)


def test_full_recomputation_has_one_layer_whole_however_many_microbatches_are_ahead() -> None:
    model = ModelDescription(layers=8, hidden=64, heads=4, ffn=256, vocabulary=100)
    job = PlannedJob(sequence=128, pp=4, batch=8, recompute="full")
    ahead, alone = (activations(model, msgspec.structs.replace(job, batch=batch), 0) for batch in (8, 1))
    entries = 2 * 128 * 64 * 2
    assert ahead.high - alone.high == 3 * entries


def test_sequence_parallelism_is_the_low_end() -> None:
    model = ModelDescription(layers=8, hidden=64, heads=4, ffn=256, vocabulary=100)
    whole, sharded = (activations(model, PlannedJob(sequence=128, tp=tp, compiled=True), 0) for tp in (1, 4))
    assert sharded.low == pytest.approx(whole.low / 4, rel=0.02)
    assert sharded.high > whole.high / 4 * 1.2


def test_copies_of_tokens_for_experts_are_kept() -> None:
    """As much work in one wide layer keeps no copies."""
    one = ModelDescription(layers=1, hidden=64, heads=4, ffn=256, vocabulary=100)
    many = ModelDescription(layers=1, hidden=64, heads=4, ffn=64, vocabulary=100, experts=8, experts_per_token=4)
    dense, routed = (activations(model, PlannedJob(sequence=128), 0) for model in (one, many))
    assert routed.low == dense.low
    assert routed.high - dense.high == 128 * 3 * 4 * 64 * 2
