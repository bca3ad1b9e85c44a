"""Products of odd sizes."""

from pathlib import Path

import pytest
from tests.explain.advise.device_traces import Op, trace

from lostflops.explain.advise.case import Case
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.rules import matmul_shapes
from lostflops.store.run import Run

BF16 = "c10::BFloat16"
GOOD = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"
UNALIGNED = "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_32x1_nn_align1>"
RATE = 0.2
"""PFLOPS, which are FLOP per fs: what products of good sizes reach here."""


def us(m: int, k: int, n: int) -> int:
    return round(2 * m * k * n / RATE / 1e9)


def head(vocabulary: int, kernel: str, factor: int = 1) -> Op:
    return Op("aten::mm", kernel, factor * us(4096, 1024, vocabulary), [[4096, 1024], [1024, vocabulary]], BF16)


def claims(folder: Path, op: Op) -> list[Claim]:
    body = Op("aten::mm", GOOD, us(4096, 1024, 49152), [[4096, 1024], [1024, 49152]], BF16)
    with Run.open(trace(folder, [body, op], steps=3)) as run:
        return list(matmul_shapes.RULE.find(Case(run)))


def test_a_vocabulary_that_nobody_padded(tmp_path: Path) -> None:
    """Three times slower than its neighbour of good size: two thirds are saved, but for what padding adds."""
    (found,) = claims(tmp_path, head(50257, UNALIGNED, factor=3))
    assert "Pad 50257 to 50304" in found.fix
    assert found.saving is not None
    bad, good, padded = 3 * us(4096, 1024, 50257), us(4096, 1024, 49152), us(4096, 1024, 50304)
    assert found.saving.value == pytest.approx((bad - padded) / (bad + good), abs=0.01)


@pytest.mark.parametrize("op", [head(50304, GOOD), head(50257, GOOD)], ids=["padded", "odd, but as fast as others"])
def test_others_are_not(tmp_path: Path, op: Op) -> None:
    assert not claims(tmp_path, op)
