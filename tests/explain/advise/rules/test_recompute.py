"""Forward passes that backward does again."""

from pathlib import Path

import pytest
from tests.explain.advise.device_traces import Op, trace

from lostflops.explain.advise.case import Case
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.rules import recompute
from lostflops.store.run import Run

MM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"
SHAPES = [[8192, 1024], [1024, 1024]]
KEPT = 8192 * 1024 * 2
LAYERS = 4


def claims(folder: Path, again: int) -> list[Claim]:
    def product(phase: str, is_again: bool = False) -> Op:
        return Op("aten::mm", MM, 100, SHAPES, "c10::BFloat16", phase, again=is_again)

    ops = [product("forward")] * LAYERS + [product("backward", True)] * again + [product("backward")] * 2 * LAYERS
    with Run.open(trace(folder, ops)) as run:
        return list(recompute.RULE.find(Case(run)))


def test_what_is_done_again_is_claimed_and_the_memory_named(tmp_path: Path) -> None:
    (found,) = claims(tmp_path, again=LAYERS)
    assert found.changes == ("recompute=off",)
    assert found.taken[0, "compute"] == pytest.approx(4 * LAYERS * 100_000, rel=0.02)
    assert "67.1 MB" in found.fix
    assert LAYERS * KEPT == 67_108_864


def test_half_of_it_is_half(tmp_path: Path) -> None:
    (found,) = claims(tmp_path, again=LAYERS // 2)
    assert found.taken[0, "compute"] == pytest.approx(4 * LAYERS // 2 * 100_000, rel=0.02)


def test_a_plain_backward_is_not(tmp_path: Path) -> None:
    assert not claims(tmp_path, again=0)
