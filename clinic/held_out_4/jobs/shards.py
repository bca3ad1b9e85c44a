"""Train gated blocks whose parameters are sharded over the ranks (FSDP2).

torchrun --nproc-per-node 2 shards.py --unit block
"""

from __future__ import annotations

import argparse

import torch
from common import Farm, Stopwatch, join, make_optimizer, make_parser
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import mse_loss, silu
from torch.utils.checkpoint import checkpoint


class Gated(nn.Module):
    """Causal mixing along the sequence, and a gated feed-forward."""

    def __init__(self, width: int, farm_ms: float) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.mix = nn.Conv1d(width, width, 4, padding=3, groups=4)
        self.gate, self.up = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.farm = Farm(farm_ms)

    def forward(self, value: Tensor) -> Tensor:
        mixed = self.mix(self.norm(value).transpose(1, 2))[..., : value.shape[1]].transpose(1, 2)
        return value + self.farm(self.down(silu(self.gate(mixed)) * self.up(mixed)))


class Network(nn.Module):
    def __init__(self, asked: argparse.Namespace) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Gated(asked.width, asked.farm_ms) for _ in range(asked.blocks))
        self.head = nn.Linear(asked.width, asked.width)
        self.rematerialize = asked.rematerialize

    def forward(self, value: Tensor) -> Tensor:
        for block in self.blocks:
            value = checkpoint(block, value, use_reentrant=False) if self.rematerialize else block(value)
        return self.head(value)


def shard(model: Network, unit: str, world: int) -> None:
    """A unit is a block, or each layer that has parameters."""
    mesh = init_device_mesh("cpu", (world,))
    for block in model.blocks:
        if unit == "layer":
            for layer in block.children():
                if next(layer.parameters(), None) is not None:
                    fully_shard(layer, mesh=mesh)
        else:
            fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--unit", choices=("block", "layer"), default="block")
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--hold", action=argparse.BooleanOptionalAction, default=True, help="reduce in the last pass")
    parser.add_argument("--rematerialize", action=argparse.BooleanOptionalAction, default=False)
    parser.add_argument("--optimizer", choices=("loop", "fused", "sgd"), default="fused")
    asked = parser.parse_args()
    rank, world = join(asked)
    model = Network(asked)
    shard(model, asked.unit, world)
    optimizer = make_optimizer(asked.optimizer, model)
    chance = torch.Generator().manual_seed(asked.seed + rank)
    watch = Stopwatch(asked.batch * asked.accumulate * world)
    for _ in range(asked.steps):
        for turn in range(1, asked.accumulate + 1):
            if asked.hold:
                model.set_requires_gradient_sync(turn == asked.accumulate)
            waves = torch.randn(asked.batch, asked.length, asked.width, generator=chance)
            mse_loss(model(waves), waves.roll(1, 1)).backward()
        optimizer.step()
        optimizer.zero_grad()
        watch.lap()
    watch.finish()


if __name__ == "__main__":
    main()
