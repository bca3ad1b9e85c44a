"""Copies that nothing hides, and allocations in the middle of steps."""

from pathlib import Path

import pytest
from tests.explain.advise.device_traces import Op, trace

from lostflops.explain.advise.case import Case
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.rules import allocator, copies
from lostflops.store.run import Run

MM = Op("aten::mm", "ampere_bf16_s16816gemm_bf16_128x128_nn", 400, [[4096, 1024], [1024, 4096]], "c10::BFloat16")
PAGEABLE = "Memcpy HtoD (Pageable -> Device)"


def claims(rule: Rule, folder: Path, ops: list[Op], steps: int = 4) -> list[Claim]:
    with Run.open(trace(folder, ops, steps=steps)) as run:
        return list(rule.find(Case(run)))


def test_a_pageable_batch_before_the_model(tmp_path: Path) -> None:
    batch = Op("aten::copy_", PAGEABLE, 200, call="cudaMemcpyAsync", blocks=True, size=77_000_000)
    (found,) = claims(copies.RULE, tmp_path, [batch, MM])
    assert "pin_memory=True" in found.fix
    assert "77.0 MB per step" in found.evidence[0].what
    assert found.taken[0, "copy"] == 4 * 200_000


def test_outputs_that_are_copied_to_the_host(tmp_path: Path) -> None:
    kept = Op("aten::copy_", "Memcpy DtoH (Device -> Pageable)", 200, call="cudaMemcpyAsync", blocks=True, size=9**9)
    (found,) = claims(copies.RULE, tmp_path, [MM, kept])
    assert "DataLoader" not in found.fix
    assert "Read it a step later" in found.fix


def test_a_pinned_copy_on_another_stream_is_hidden(tmp_path: Path) -> None:
    batch = Op("aten::copy_", "Memcpy HtoD (Pinned -> Device)", 1, call="cudaMemcpyAsync", size=77_000_000)
    assert not claims(copies.RULE, tmp_path, [MM, batch])


def test_a_value_that_is_read_is_no_copy(tmp_path: Path) -> None:
    value = Op("aten::item", "Memcpy DtoH (Device -> Pageable)", 100, call="cudaMemcpyAsync", blocks=True, size=4)
    assert not claims(copies.RULE, tmp_path, [MM, value])


def test_memory_that_is_given_back_and_asked_for_again(tmp_path: Path) -> None:
    """Freeing waits until the device is done, so the host, which is the slower here, holds the device up."""
    free = Op("aten::empty", call="cudaFree", call_us=1200)
    asked = Op("aten::empty", call="cudaMalloc", call_us=50)
    (found,) = claims(allocator.RULE, tmp_path, [MM, free, asked, MM], steps=6)
    assert "expandable_segments:True" in found.fix
    assert "empty_cache" in found.fix
    hidden = 6 * 2 * 400_000 - 400_000  # under the first call runs one product, under later ones two
    assert found.taken[0, "idle.alloc"] == pytest.approx(6 * 1_250_000 - hidden, rel=0.05)
    with Run.open(tmp_path / "run") as run:
        assert found.taken[0, "idle.alloc"] == Case(run).lines[0]["idle.alloc"]


def test_short_calls_are_not(tmp_path: Path) -> None:
    assert not claims(allocator.RULE, tmp_path, [MM, Op("aten::empty", call="cudaMalloc", call_us=5), MM])
