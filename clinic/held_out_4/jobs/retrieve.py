"""Learn embeddings of documents by contrast with those of a memory bank (DDP).

torchrun --nproc-per-node 2 retrieve.py --bank 2048
"""

from __future__ import annotations

import argparse
from itertools import pairwise

import torch
import torch.distributed as dist
from common import Farm, Stopwatch, join, make_optimizer, make_parser
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from torch.nn.parallel import DistributedDataParallel

INPUTS = 256


class Tower(nn.Module):
    def __init__(self, asked: argparse.Namespace) -> None:
        super().__init__()
        widths = [INPUTS, *[asked.width] * asked.layers]
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), nn.ReLU()]
        self.layers = nn.Sequential(*layers, Farm(asked.farm_ms), nn.Linear(asked.width, asked.dimensions))

    def forward(self, features: Tensor) -> Tensor:
        return normalize(self.layers(features), dim=1)


class Hashed:
    """Documents as sparse counts of hashed words, weighted and folded to the width of the inputs."""

    def __init__(self, asked: argparse.Namespace, rank: int) -> None:
        self._rows, self._columns = asked.batch, asked.columns
        self._is_fresh = asked.scratch == "fresh"
        self._chance = torch.Generator().manual_seed(asked.seed + rank)
        self._weights = torch.rand(self._columns, generator=self._chance)
        self._counts, self._weighted = torch.empty(0), torch.empty(0)
        if not self._is_fresh:
            self._counts = torch.zeros(self._rows, self._columns)
            self._weighted = torch.zeros(self._rows, self._columns)

    def next(self) -> Tensor:
        words = torch.randint(self._columns, (self._rows, 400), generator=self._chance)
        ones = torch.ones(words.shape)
        if self._is_fresh:
            counts = torch.zeros(self._rows, self._columns).scatter_add_(1, words, ones)
            weighted = counts * self._weights
        else:
            counts, weighted = self._counts.zero_().scatter_add_(1, words, ones), self._weighted
            torch.mul(counts, self._weights, out=weighted)
        return weighted.view(self._rows, INPUTS, -1).sum(2)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--dimensions", type=int, default=128)
    parser.add_argument("--bank", type=int, default=2048, help="embeddings that are kept")
    parser.add_argument("--columns", type=int, default=0, help="of hashed words; dense inputs if 0")
    parser.add_argument("--scratch", choices=("fresh", "kept"), default="kept")
    parser.add_argument("--keep", choices=("all", "last"), default="last", help="outputs that a hook keeps")
    asked = parser.parse_args()
    rank, world = join(asked)
    tower = Tower(asked)
    model = DistributedDataParallel(tower, gradient_as_bucket_view=True)
    optimizer = make_optimizer("fused", model)
    kept: list[Tensor] = []
    for layer in tower.layers:
        layer.register_forward_hook(lambda _, __, output: kept.append(output))
    hashed = Hashed(asked, rank) if asked.columns else None
    chance = torch.Generator().manual_seed(asked.seed + rank)
    bank = torch.zeros(0, asked.dimensions)
    watch = Stopwatch(asked.batch * world)
    for _ in range(asked.steps):
        features = hashed.next() if hashed else torch.randn(asked.batch, INPUTS, generator=chance)
        queries = model(features)
        keys = queries.detach().roll(1, 0)
        logits = queries @ torch.cat([keys, bank]).T / 0.1
        cross_entropy(logits, torch.arange(asked.batch)).backward()
        optimizer.step()
        optimizer.zero_grad()
        shared = [torch.empty_like(keys) for _ in range(world)]
        dist.all_gather(shared, keys)
        bank = torch.cat([bank, *shared])[-asked.bank :]
        if asked.keep == "last":
            kept.clear()
        watch.lap()
    watch.finish()


if __name__ == "__main__":
    main()
