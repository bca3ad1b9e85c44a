"""Faults that a job can be declared with: each changes what it says, in the records and in the truth."""

import json
from dataclasses import replace
from typing import Any

import pytest

from lostflops.testing import HostCosts, Kernel, Losses, Model, Network, Straggler, SyntheticCluster

DDP = SyntheticCluster(ranks=2, steps=2, noise=0.0)


def events(cluster: SyntheticCluster, rank: int = 0) -> list[dict[str, Any]]:
    return [e for e in json.loads(cluster.generate().traces[rank].text())["traceEvents"] if e["ph"] == "X"]


def named(found: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [event for event in found if name in event["name"]]


def end(event: dict[str, Any]) -> float:
    return float(event["ts"] + event["dur"])


def test_a_larger_batch_has_larger_shapes() -> None:
    cluster = replace(DDP, stragglers=(Straggler(1, "larger_batch", factor=1.5),))
    equal, larger = cluster.generate().truth.ranks
    assert larger.steps[0].flops == 1.5 * equal.steps[0].flops
    assert larger.lines["compute"] > 1.3 * equal.lines["compute"]
    shapes = {str(e["args"]["Input Dims"]) for e in named(events(cluster, 1), "aten::mm")}
    assert "[[1536, 512], [512, 512]]" in shapes


def test_stages_have_their_layers() -> None:
    stages = replace(DDP, pipeline_parallel=2, stage_layers=(2, 6)).generate().truth.ranks
    assert stages[1].steps[0].flops == 3 * stages[0].steps[0].flops


def test_without_overlap_gradients_are_reduced_after_the_backward_pass() -> None:
    for overlap in (True, False):
        found = events(replace(DDP, steps=1, overlap=overlap))
        backward = max(end(event) for event in named(found, "Backward0"))
        calls = [event["ts"] >= backward for event in named(found, "c10d::allreduce_")]
        assert any(calls)
        assert all(calls) is not overlap


def test_gradients_are_reduced_in_pieces_and_in_every_microbatch() -> None:
    model = Model(gradient_bytes=1_000_002, pieces=3)
    plain = replace(DDP, steps=1, microbatches=4, model=model)
    for cluster, passes in ((plain, 1), (replace(plain, reduce_always=True), 4)):
        sizes = [collective.bytes for collective in cluster.generate().truth.collectives]
        assert len(sizes) == passes * model.buckets * 3
        assert sum(sizes) == passes * model.layers * model.gradient_bytes


def test_stacks_tell_the_line_that_blocks() -> None:
    found = events(replace(DDP, stacks=True, losses=Losses(sync=2)))
    frames = {e["args"]["Python id"]: e for e in found if e["cat"] == "python_function"}
    for call in named(found, "cudaStreamSynchronize"):
        (item,) = (e for e in named(found, "built-in method item") if e["ts"] <= call["ts"] <= end(e))
        callers = [frames[item["args"]["Python parent id"]]]
        while callers[-1]["args"]["Python parent id"] is not None:
            callers.append(frames[callers[-1]["args"]["Python parent id"]])
        assert [e["name"] for e in callers] == [
            "train.py(88): log_loss",
            "train.py(71): train_step",
            "train.py(142): <module>",
        ]
        assert all(e["ts"] <= item["ts"] and end(item) <= end(e) for e in callers)
    assert len(named(found, "cudaStreamSynchronize")) == 4
    assert not [e for e in events(DDP) if e["cat"] == "python_function"]


def test_compilation_leaves_the_device_idle() -> None:
    truth = replace(DDP, losses=Losses(compile=5_000_000, steps=(11,))).generate().truth
    assert [step.lines["idle.compile"] > 4_000_000 for step in truth.ranks[0].steps] == [True, False]


def test_a_pageable_copy_blocks_the_host() -> None:
    cluster = replace(DDP, losses=Losses(copy_bytes=12_000_000, pageable=True))
    found = events(cluster)
    for copy, call in zip(named(found, "Pageable -> Device"), named(found, "cudaStreamSynchronize"), strict=True):
        assert call["ts"] < end(copy) < end(call)
    assert cluster.generate().truth.ranks[0].lines["copy"] == 2 * 2_000_000


def test_an_optimizer_loop_runs_ops_of_single_tensors() -> None:
    found = events(replace(DDP, model=Model(optimizer_kernels=16, fused=False, foreach=False)))
    (first, _) = named(found, "Optimizer.step#AdamW.step")
    inside = [e["name"] for e in found if e["cat"] == "cpu_op" and first["ts"] <= e["ts"] < end(first)]
    assert len(inside) == 16
    assert {"aten::lerp_", "aten::addcmul_", "aten::addcdiv_"} < set(inside)


def test_types_and_shapes_are_recorded() -> None:
    kernels = (Kernel(9_000, (8, 4, 2), name="sgemm", dtype="float32"), Kernel(5_000, op="tanh", shape=(8, 4, 2)))
    found = events(replace(DDP, model=Model(kernels=kernels)))
    assert {tuple(e["args"]["Input type"]) for e in named(found, "aten::mm")} == {("float", "float")}
    tanh = named(found, "aten::tanh")[0]["args"]
    assert tanh["Input Dims"] == [[8, 4, 2]] * 2
    assert tanh["Input Strides"] == [[8, 2, 1]] * 2
    assert named(found, "TanhBackward0")


def test_annotations_are_those_of_torch() -> None:
    found = events(replace(DDP, annotations=True))
    assert len(named(found, "DistributedDataParallel.forward")) == 2
    assert len(named(found, "Optimizer.step#AdamW.step")) == 2
    assert not named(events(replace(DDP, annotations=True, overlap=False)), "DistributedDataParallel")


@pytest.mark.parametrize(
    "jittery", [replace(DDP, host=HostCosts(jitter=0.1)), replace(DDP, network=Network(jitter=0.1))]
)
def test_jitter_is_chance_of_the_seed(jittery: SyntheticCluster) -> None:
    text = jittery.generate().traces[0].text()
    assert text == jittery.generate().traces[0].text()
    assert text not in (DDP.generate().traces[0].text(), replace(jittery, seed=1).generate().traces[0].text())
    transfers = [collective.transfer for collective in jittery.generate().truth.collectives]
    assert (len(set(transfers)) > 1) is (jittery.network.jitter > 0)
