"""Train layers of experts, one per rank; a router sends tokens by chance, and a share of them to one expert.

torchrun --nproc-per-node 3 expert_job.py --hot 1 --share 0.6 --layer 1 --capacity 400 --pad
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


class Exchange(torch.autograd.Function):
    """Rows go to the ranks of their experts, and gradients back."""

    @staticmethod
    def forward(context: Any, rows: Tensor, sends: list[int], receives: list[int]) -> Tensor:
        context.sizes = sends, receives
        return exchanged(rows, sends, receives)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Any:
        sends, receives = context.sizes
        return exchanged(gradients[0].contiguous(), receives, sends), None, None


def exchanged(rows: Tensor, sends: list[int], receives: list[int]) -> Tensor:
    found = rows.new_empty(sum(receives), rows.shape[1])
    dist.all_to_all_single(found, rows, receives, sends)
    return found


class Mixture(nn.Module):
    def __init__(self, width: int, hot: int | None, share: float, capacity: int | None, pad: bool) -> None:
        super().__init__()
        self.capacity, self.pad = capacity, pad
        self.experts = nn.ModuleList(
            [nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))]
        )
        self.hot, self.share = hot, share

    def forward(self, rows: Tensor, chance: torch.Generator) -> Tensor:
        expert = torch.randint(dist.get_world_size(), (len(rows),), generator=chance)
        if self.hot is not None:
            expert[torch.rand(len(rows), generator=chance) < self.share] = self.hot
        if self.capacity is not None:
            return rows + self.limited(rows, expert, self.capacity)
        order = expert.argsort()
        sends = torch.bincount(expert, minlength=dist.get_world_size())
        receives = torch.empty_like(sends)
        dist.all_to_all_single(receives, sends)
        there, back = sends.tolist(), receives.tolist()
        worked = Exchange.apply(self.experts[0](Exchange.apply(rows[order], there, back)), back, there)
        return rows + worked[order.argsort()]

    def limited(self, rows: Tensor, expert: Tensor, capacity: int) -> Tensor:
        """Send at most `capacity` tokens to each expert: others are dropped, and free places padded if asked."""
        taken = [(expert == one).nonzero().flatten()[:capacity] for one in range(dist.get_world_size())]
        sends = torch.tensor([capacity if self.pad else len(own) for own in taken])
        receives = torch.empty_like(sends)
        dist.all_to_all_single(receives, sends)
        there, back = sends.tolist(), receives.tolist()
        filled = [
            torch.cat((rows[own], rows.new_zeros(size - len(own), rows.shape[1])))
            for own, size in zip(taken, there, strict=True)
        ]
        worked = Exchange.apply(self.experts[0](Exchange.apply(torch.cat(filled), there, back)), back, there)
        parts = [part[: len(own)] for part, own in zip(worked.split(there), taken, strict=True)]
        return torch.zeros_like(rows).index_add(0, torch.cat(taken), torch.cat(parts))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hot", type=int)
    parser.add_argument("--share", type=float, default=0.6)
    parser.add_argument("--layer", type=int, default=1, help="the one with the hot expert")
    parser.add_argument("--capacity", type=int, help="most tokens of a rank for an expert")
    parser.add_argument("--pad", action="store_true", help="fill free places")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    hot = [asked.hot if at == asked.layer else None for at in range(3)]
    layers = nn.ModuleList([Mixture(192, one, asked.share, asked.capacity, asked.pad) for one in hot])
    optimizer = torch.optim.SGD(layers.parameters(), lr=1e-4)
    chance = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(40):
        rows = torch.randn(1024, 192, generator=chance)
        for layer in layers:
            rows = layer(rows, chance)
        rows.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
