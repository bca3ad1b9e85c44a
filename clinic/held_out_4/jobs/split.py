"""Train feed-forward layers that are split over the ranks (tensor parallel).

torchrun --nproc-per-node 2 split.py --chunks 1
"""

from __future__ import annotations

import argparse

import torch
from common import Farm, Stopwatch, join, make_parser
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import gelu, mse_loss


class Layer(nn.Module):
    """The sequence passes in chunks, which takes less memory."""

    def __init__(self, asked: argparse.Namespace) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(asked.width, elementwise_affine=False)
        self.up, self.down = nn.Linear(asked.width, asked.wide), nn.Linear(asked.wide, asked.width)
        self.farm, self._chunks = Farm(asked.farm_ms), asked.chunks

    def forward(self, value: Tensor) -> Tensor:
        parts = [self.down(gelu(self.up(part))) for part in self.norm(value).chunk(self._chunks, 1)]
        return value + self.farm(torch.cat(parts, 1))


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--wide", type=int, default=768)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--chunks", type=int, default=1)
    asked = parser.parse_args()
    _, world = join(asked)
    model = nn.Sequential(*(Layer(asked) for _ in range(asked.layers)))
    mesh = init_device_mesh("cpu", (world,))
    for layer in model:
        parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    chance = torch.Generator().manual_seed(asked.seed)
    watch = Stopwatch(asked.batch)
    for _ in range(asked.steps):
        waves = torch.randn(asked.batch, asked.length, asked.width, generator=chance)
        mse_loss(model(waves), waves.roll(1, 1)).backward()
        optimizer.step()
        optimizer.zero_grad()
        watch.lap()
    watch.finish()


if __name__ == "__main__":
    main()
