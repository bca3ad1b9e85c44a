"""Train an MLP-mixer on patches, with DDP or with gradients that are averaged by hand.

torchrun --nproc-per-node 2 mixer.py --blocks 8
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext

import torch
import torch.distributed as dist
from common import Farm, Stopwatch, join, make_optimizer, make_parser
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu
from torch.nn.parallel import DistributedDataParallel

CLASSES = 20


class Block(nn.Module):
    def __init__(self, patches: int, width: int, wide: int, farm_ms: float) -> None:
        super().__init__()
        self.over_patches = nn.Sequential(nn.Linear(patches, 2 * patches), nn.GELU(), nn.Linear(2 * patches, patches))
        self.up, self.down = nn.Linear(width, wide), nn.Linear(wide, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.farm = Farm(farm_ms)

    def forward(self, value: Tensor) -> Tensor:
        value = value + self.over_patches(self.first(value).transpose(1, 2)).transpose(1, 2)
        value = value + self.down(gelu(self.up(self.second(value))))
        return self.farm(value * self.scale + self.shift)


class Mixer(nn.Module):
    def __init__(self, asked: argparse.Namespace) -> None:
        super().__init__()
        self.stem = nn.Linear(48, asked.width)
        wide = asked.wide or 2 * asked.width
        self.blocks = nn.Sequential(
            *(Block(asked.patches, asked.width, wide, asked.farm_ms) for _ in range(asked.blocks))
        )
        self.head = nn.Linear(asked.width, CLASSES)

    def forward(self, patches: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(patches)).mean(1))


def average(model: nn.Module) -> None:
    """Average all gradients over the ranks, in one message."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for gradient, part in zip(gradients, flat.split([each.numel() for each in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


def clip_each(model: nn.Module, largest: float) -> None:
    """Clip every tensor by the largest norm that any rank sees."""
    for parameter in model.parameters():
        if parameter.grad is not None:
            norm = parameter.grad.norm()
            dist.all_reduce(norm, op=dist.ReduceOp.MAX)
            if (seen := norm.item()) > largest:
                parameter.grad.mul_(largest / seen)


def share_status(number: int, loss: Tensor, fields: int) -> float:
    """Let every rank know how each other fares, field by field."""
    worst = 0.0
    for field in range(fields):
        told: list[object] = [None] * dist.get_world_size()
        dist.all_gather_object(told, {"step": number, "field": field, "loss": loss.item()})
        worst = max(worst, *(float(each["loss"]) for each in told if isinstance(each, dict)))
    return worst


def parse() -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--wide", type=int, default=0, help="of the inner layer; twice the width if 0")
    parser.add_argument("--patches", type=int, default=32)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--hold", action=argparse.BooleanOptionalAction, default=True, help="reduce in the last pass")
    parser.add_argument("--average", choices=("ddp", "hand"), default="ddp")
    parser.add_argument("--bucket-mb", type=float, default=25)
    parser.add_argument("--unused", action=argparse.BooleanOptionalAction, default=False)
    parser.add_argument("--detect-anomaly", action=argparse.BooleanOptionalAction, default=False)
    parser.add_argument("--clip-every", type=int, default=0)
    parser.add_argument("--status-every", type=int, default=0)
    parser.add_argument("--status-fields", type=int, default=8)
    parser.add_argument("--optimizer", choices=("loop", "fused", "sgd"), default="fused")
    return parser.parse_args()


def wrap(asked: argparse.Namespace, model: nn.Module) -> nn.Module:
    if asked.average == "hand":
        return model
    return DistributedDataParallel(
        model,
        bucket_cap_mb=asked.bucket_mb,
        find_unused_parameters=asked.unused,
        gradient_as_bucket_view=True,
    )


def main() -> None:
    asked = parse()
    rank, world = join(asked)
    torch.autograd.set_detect_anomaly(asked.detect_anomaly)
    model = wrap(asked, Mixer(asked))
    optimizer = make_optimizer(asked.optimizer, model)
    chance = torch.Generator().manual_seed(asked.seed + rank)
    watch = Stopwatch(asked.batch * asked.accumulate * world)
    for number in range(1, asked.steps + 1):
        for turn in range(1, asked.accumulate + 1):
            patches = torch.randn(asked.batch, asked.patches, 48, generator=chance)
            labels = torch.randint(CLASSES, (asked.batch,), generator=chance)
            is_held = asked.hold and turn < asked.accumulate and isinstance(model, DistributedDataParallel)
            with model.no_sync() if is_held else nullcontext():
                loss = cross_entropy(model(patches), labels)
                loss.backward()
        if asked.average == "hand":
            average(model)
        if asked.clip_every and number % asked.clip_every == 0:
            clip_each(model, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if asked.status_every and number % asked.status_every == 0:
            share_status(number, loss, asked.status_fields)
        watch.lap()
    watch.finish()


if __name__ == "__main__":
    main()
