"""The example of one-bit masks: gradients are the same, bit by bit, and a mask is all that is kept."""

import runpy
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    pytest.importorskip("torch")
    return runpy.run_path(str(Path(__file__).parents[4] / "examples" / "relu_mask" / "train.py"))


def test_gradients_are_the_same_bit_by_bit(example: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    found = []
    for relu in (torch.nn.ReLU, example["MaskedReLU"]):
        model = example["model_with"](relu)
        torch.manual_seed(1)
        batch = torch.randn(37, 128, requires_grad=True)
        model(batch).square().mean().backward()
        found.append([batch.grad, *(parameter.grad for parameter in model.parameters())])
    assert all(torch.equal(plain, masked) for plain, masked in zip(*found, strict=True))


@pytest.mark.parametrize("shape", [(), (1,), (8,), (3, 5), (2, 0)])
def test_a_mask_holds_a_bit_for_each_number(example: dict[str, Any], shape: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    kept = torch.randn(shape)
    packed = example["pack"](kept)
    assert packed[0].numel() == -(-kept.numel() // 8)
    assert torch.equal(example["unpack"](packed), (kept > 0).to(kept.dtype))
