"""An accelerator beside the CPU, whose time goes by without taking a core."""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn


@torch.library.custom_op("accelerator::run", mutates_args=())
def run(value: Tensor, ms: float) -> Tensor:
    time.sleep(1e-3 * ms)
    return value.clone()


class _Timed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, value: Tensor, ms: float) -> Tensor:
        ctx.ms = ms
        return run(value, ms)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor, None]:
        return run(gradients[0], 2 * ctx.ms), None


class Accelerated(nn.Module):
    """So many milliseconds for each element of the first dimensions, and twice that backward; 0 is none."""

    def __init__(self, ms: float, dimensions: int = 1) -> None:
        super().__init__()
        self.ms = ms
        self._dimensions = dimensions

    def forward(self, value: Tensor) -> Tensor:
        count = value.shape[: self._dimensions].numel()
        return _Timed.apply(value, self.ms * count) if self.ms else value
