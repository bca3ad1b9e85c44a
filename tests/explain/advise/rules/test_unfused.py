"""Chains of elementwise kernels."""

from pathlib import Path

import pytest
from tests.explain.advise.device_traces import Op, trace

from lostflops.explain.advise.case import Case
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.rules import unfused
from lostflops.store.run import Run

MM = Op("aten::mm", "ampere_bf16_s16816gemm_bf16_128x128_nn", 400, [[4096, 1024], [1024, 4096]], "c10::BFloat16")


def pointwise(name: str, us: int = 50, kernel: str = "void at::native::vectorized_elementwise_kernel<4>") -> Op:
    return Op(f"aten::{name}", kernel, us, [[4096, 4096]], "c10::BFloat16")


def claims(folder: Path, ops: list[Op]) -> list[Claim]:
    with Run.open(trace(folder, ops)) as run:
        return list(unfused.RULE.find(Case(run)))


def test_a_chain_saves_at_most_its_time_and_claims_what_is_beyond_its_longest_kernel(tmp_path: Path) -> None:
    chain = [pointwise(name) for name in ("pow", "mul", "add", "mul", "tanh", "add", "mul", "mul")]
    (found,) = claims(tmp_path, [MM, *chain, MM])
    assert found.saving is not None
    busy = 2 * 400 + 8 * 50
    assert found.saving.value == pytest.approx(8 * 50 / busy, abs=0.02)
    assert "pow, mul, add, mul, tanh, add and 2 more" in found.evidence[0].what
    assert found.taken[0, "compute"] == pytest.approx(4 * (8 - 1) * 50_000, rel=0.02)


@pytest.mark.parametrize(
    "ops",
    [
        [MM, pointwise("gelu", 200), MM, pointwise("add", 200)],
        [MM, *[pointwise("mul", 50, "triton_poi_fused_mul_add_3")] * 8],
        [MM, MM, MM, MM, *[pointwise("mul", 10)] * 8],
    ],
    ids=["one between products", "fused by inductor", "short beside products"],
)
def test_others_are_not(tmp_path: Path, ops: list[Op]) -> None:
    assert not claims(tmp_path, ops)
