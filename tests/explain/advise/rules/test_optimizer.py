"""Updates in many small pieces."""

from pathlib import Path

import pytest
from tests.explain.advise.device_traces import Op, trace

from lostflops.explain.advise.case import Case
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.rules import optimizer
from lostflops.store.run import Run

MM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"
STEPS = 4


def claims(folder: Path, updates: list[Op], forward_us: int = 1000) -> list[Claim]:
    shapes = [[4096, 1024], [1024, 4096]]
    model = [Op("aten::mm", MM, forward_us, shapes, "c10::BFloat16", phase) for phase in ("forward", "backward")]
    with Run.open(trace(folder, [*model, *updates], steps=STEPS)) as run:
        return list(optimizer.RULE.find(Case(run)))


def update(name: str, kernel: str, us: int, count: int) -> list[Op]:
    return [Op(name, kernel, us, phase="optimizer")] * count


def test_a_loop_over_parameters_is_found(tmp_path: Path) -> None:
    (found,) = claims(tmp_path, update("aten::addcdiv_", "void at::native::elementwise_kernel<128, 2>", 4, 200))
    assert found.changes == ("optimizer=fused",)
    assert "200 kernels per step of 4.00 us" in found.what
    kernels = STEPS * 200 * 4_000
    assert found.taken[0, "compute"] == pytest.approx(kernels * (1 - 7 / 20), rel=0.01)


@pytest.mark.parametrize(
    "updates",
    [
        update("aten::_fused_adamw_", "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>", 150, 6),
        update("aten::_fused_adamw_", "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>", 4, 200),
        update("aten::mm", MM, 4, 200),
        update("aten::addcdiv_", "void at::native::elementwise_kernel<128, 2>", 4, 20),
    ],
    ids=["fused", "fused, many", "multiplies matrices", "few"],
)
def test_others_are_not(tmp_path: Path, updates: list[Op]) -> None:
    assert not claims(tmp_path, updates)


def test_an_update_that_is_short_beside_the_model_is_not(tmp_path: Path) -> None:
    updates = update("aten::addcdiv_", "void at::native::elementwise_kernel<128, 2>", 4, 100)
    assert not claims(tmp_path, updates, forward_us=40_000)
