"""Residual layers for stages of a pipeline."""

from __future__ import annotations

from common import Farm
from torch import Tensor, nn
from torch.nn.functional import gelu


class Residual(nn.Module):
    def __init__(self, width: int, farm_ms: float) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, width), nn.Linear(width, width)
        self.farm = Farm(farm_ms)

    def forward(self, value: Tensor) -> Tensor:
        return value + self.farm(self.down(gelu(self.up(self.norm(value)))))


def make_stage(layers: int, width: int, farm_ms: float) -> nn.Sequential:
    return nn.Sequential(*(Residual(width, farm_ms) for _ in range(layers)))
