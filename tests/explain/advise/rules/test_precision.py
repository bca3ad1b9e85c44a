"""Products in fp32 on devices that have faster units."""

from pathlib import Path

import pytest
from tests.explain.advise.device_traces import Op, trace

from lostflops.explain.advise.case import Case
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.rules import precision
from lostflops.store.run import Run

SHAPES = [[4096, 1024], [1024, 4096]]


def claims(folder: Path, kernel: str, dtype: str = "float", device: str = "NVIDIA A100-SXM4-80GB") -> list[Claim]:
    ops = [
        Op("aten::mm", kernel, 1800, SHAPES, dtype),
        Op("aten::gelu", "void at::native::vectorized_elementwise_kernel<4>", 200, [[4096, 4096]], dtype),
        Op("aten::mm", kernel, 1800, SHAPES, dtype, "backward"),
    ]
    with Run.open(trace(folder, ops, device=device)) as run:
        return list(precision.RULE.find(Case(run)))


def test_fp32_products_are_claimed_but_for_what_they_need(tmp_path: Path) -> None:
    (found,) = claims(tmp_path, "ampere_sgemm_128x64_nn")
    assert found.changes == ("precision=bf16",)
    assert "torch.set_float32_matmul_precision" in found.fix
    products = 4 * 2 * 1_800_000
    assert found.taken[0, "compute"] == pytest.approx(products * (1 - 19.5 / 312), rel=0.01)
    assert "[4096, 1024] [1024, 4096]" in found.evidence[0].what


@pytest.mark.parametrize(
    ("kernel", "dtype"),
    [
        ("cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4", "float"),
        ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn", "c10::BFloat16"),
    ],
)
def test_products_on_tensor_cores_are_not(tmp_path: Path, kernel: str, dtype: str) -> None:
    assert not claims(tmp_path, kernel, dtype)


def test_a_device_whose_peaks_are_not_known_is_left_alone(tmp_path: Path) -> None:
    assert not claims(tmp_path, "ampere_sgemm_128x64_nn", device="NVIDIA Something")


def test_a_volta_has_no_bf16(tmp_path: Path) -> None:
    (found,) = claims(tmp_path, "volta_sgemm_128x64_nn", device="Tesla V100-SXM2-32GB")
    assert found.changes == ("precision=fp16",)
    assert "GradScaler" in found.fix
    assert "set_float32" not in found.fix
