"""A network of linear layers whose time is that of a faraway device: a kernel that sleeps.

Ranks on one machine share its cores; computing on them, they would hold each other up.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn


@torch.library.custom_op("far::kernel", mutates_args=())
def kernel(value: Tensor, seconds: float) -> Tensor:
    time.sleep(seconds)
    return value.clone()


class _Far(torch.autograd.Function):
    @staticmethod
    def forward(context: torch.autograd.function.FunctionCtx, value: Tensor, ahead: float, back: float) -> Tensor:
        context.back = back
        return kernel(value, ahead)

    @staticmethod
    def backward(context: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return kernel(gradients[0], context.back), None, None


class Block(nn.Module):
    """`sample_ms` is what a sample takes forward; backward takes twice that. Each head has a share of the output."""

    def __init__(self, width: int, heads: int, sample_ms: float) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(width, width // heads, bias=False) for _ in range(heads))
        self.seconds = 1e-3 * sample_ms

    def forward(self, value: Tensor) -> Tensor:
        seconds = self.seconds * len(value)
        value = _Far.apply(value, seconds, 2 * seconds)
        return torch.cat([head(value) for head in self.heads], 1)


class Network(nn.Sequential):
    def __init__(self, layers: int, width: int, sample_ms: float, heads: int = 1) -> None:
        super().__init__(*(Block(width, heads, sample_ms / layers) for _ in range(layers)))

    def slow_down(self, factor: float) -> None:
        for block in self:
            block.seconds *= factor
