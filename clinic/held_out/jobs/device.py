"""A device beside the CPU: what runs on it takes its time, and no core."""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn


@torch.library.custom_op("device::busy", mutates_args=())
def busy(value: Tensor, seconds: float) -> Tensor:
    time.sleep(seconds)
    return value.clone()


def _keep(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, float], output: Tensor) -> None:  # noqa: ARG001
    ctx.back = 2 * inputs[1]


def _back(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
    return busy(gradient, ctx.back), None


busy.register_autograd(_back, setup_context=_keep)


class OnDevice(nn.Module):
    """So long for each row of its input, and twice that on the way back."""

    def __init__(self, row_ms: float) -> None:
        super().__init__()
        self._seconds = 1e-3 * row_ms

    def forward(self, value: Tensor) -> Tensor:
        seconds = self._seconds * len(value)
        return busy(value, seconds) if seconds else value
