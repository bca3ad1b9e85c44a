"""Train layers of experts, one expert per rank; tokens are sent to the two that fit best.

torchrun --nproc-per-node 4 moe.py --tokens 128
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
import torch.distributed as dist
from common import Farm, Stopwatch, join, make_optimizer, make_parser
from torch import Tensor, nn
from torch.nn.functional import mse_loss, relu


class _Shuffle(torch.autograd.Function):
    """All-to-all of tokens; gradients go back the same way."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, out: list[int], into: list[int]) -> Tensor:
        ctx.out, ctx.into = out, into
        return shuffle(tokens, out, into)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return shuffle(gradients[0].contiguous(), ctx.into, ctx.out), None, None


def shuffle(tokens: Tensor, out: list[int], into: list[int]) -> Tensor:
    arrived = tokens.new_empty(sum(into), tokens.shape[1])
    dist.all_to_all_single(arrived, tokens, into, out)
    return arrived


class Experts(nn.Module):
    def __init__(self, asked: argparse.Namespace, world: int) -> None:
        super().__init__()
        self._world, self._slices = world, asked.slices
        self.router = nn.Linear(asked.width, world, bias=False)
        self.up, self.down = nn.Linear(asked.width, asked.wide), nn.Linear(asked.wide, asked.width)
        self.farm = Farm(asked.farm_ms)

    def forward(self, tokens: Tensor, liked: Tensor) -> Tensor:
        parts = zip(tokens.chunk(self._slices), liked.chunk(self._slices), strict=True)
        return torch.cat([self._route(part, likes) for part, likes in parts])

    def _route(self, tokens: Tensor, liked: Tensor) -> Tensor:
        weights, experts = (0.05 * self.router(tokens) + liked).softmax(1).topk(2, 1)
        order = experts.flatten().argsort()
        counts = torch.bincount(experts.flatten(), minlength=self._world)
        coming = torch.empty_like(counts)
        dist.all_to_all_single(coming, counts)
        out, into = counts.tolist(), coming.tolist()
        here = _Shuffle.apply(tokens.repeat_interleave(2, 0)[order], out, into)
        done = _Shuffle.apply(self.down(relu(self.up(self.farm(here)))), into, out)
        both = done[order.argsort()].view(len(tokens), 2, -1)
        return tokens + (weights[..., None] * both).sum(1)


def average(parameters: list[nn.Parameter], world: int) -> None:
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    for gradient, part in zip(gradients, (flat / world).split([each.numel() for each in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


def make_likes(tokens: int, world: int, popular: str, chance: torch.Generator) -> Tensor:
    """Each token likes two experts; so many of them like the popular one best."""
    likes = 3 * torch.rand(tokens, world, generator=chance)
    expert, share = popular.split(":")
    if expert != "none":
        likes[torch.rand(tokens, generator=chance) < float(share), int(expert)] = 5
    return likes


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--wide", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=128, help="of a rank")
    parser.add_argument("--slices", type=int, default=1, help="in which tokens are sent")
    parser.add_argument("--popular", default="none:0", metavar="EXPERT:SHARE", help="tokens that like it best")
    asked = parser.parse_args()
    rank, world = join(asked)
    layers = nn.ModuleList(Experts(asked, world) for _ in range(asked.layers))
    routers = [layer.router.weight for layer in layers if isinstance(layer, Experts)]
    optimizer = make_optimizer("fused", layers)
    chance = torch.Generator().manual_seed(asked.seed + rank)
    watch = Stopwatch(asked.tokens * world)
    for _ in range(asked.steps):
        tokens = torch.randn(asked.tokens, asked.width, generator=chance)
        value = tokens
        for layer in layers:
            value = layer(value, make_likes(asked.tokens, world, asked.popular, chance))
        mse_loss(value, tokens.flip(1)).backward()
        average(routers, world)
        optimizer.step()
        optimizer.zero_grad()
        watch.lap()
    watch.finish()


if __name__ == "__main__":
    main()
