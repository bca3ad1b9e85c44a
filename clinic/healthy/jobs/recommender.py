"""A recommender: each rank has half of the embedding bags; pooled rows travel to all, the dense part is replicated."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn.functional import all_to_all_single
from torch.nn.parallel import DistributedDataParallel

TABLES, ROWS, WIDTH, PER_BAG, BATCH = 4, 20_000, 32, 8, 512


class Dense(nn.Module):
    def __init__(self):
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, WIDTH))
        self.top = nn.Sequential(nn.Linear((TABLES + 1) * WIDTH, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU())
        self.score = nn.Linear(1024, 1)

    def forward(self, numbers, pooled):
        return self.score(self.top(torch.cat([self.bottom(numbers), pooled], 1))).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=64)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    world, rank = dist.get_world_size(), dist.get_rank()
    torch.manual_seed(0)
    dense = DistributedDataParallel(Dense())
    bags = nn.ModuleList(nn.EmbeddingBag(ROWS, WIDTH, mode="sum", sparse=True) for _ in range(TABLES // world))
    dense_optimizer = torch.optim.Adam(dense.parameters(), lr=1e-3, fused=True)
    sparse_optimizer = torch.optim.SGD(bags.parameters(), lr=0.05)
    clicks = torch.Generator().manual_seed(2)
    samples = torch.Generator().manual_seed(3 + rank)
    for step in range(args.steps):
        # A reader that is partitioned by table returns what all samples have in the tables of this rank.
        indices = torch.randint(ROWS, (len(bags), world * BATCH, PER_BAG), generator=clicks)
        pooled = torch.stack([bag(index) for bag, index in zip(bags, indices, strict=True)], 1)
        received = all_to_all_single(torch.empty(world * BATCH, len(bags), WIDTH), pooled)
        features = received.view(world, BATCH, -1).transpose(0, 1).reshape(BATCH, -1)
        numbers = torch.rand(BATCH, 16, generator=samples)
        target = (numbers.mean(1) > 0.5).float()
        loss = nn.functional.binary_cross_entropy_with_logits(dense(numbers, features), target)
        dense_optimizer.zero_grad()
        sparse_optimizer.zero_grad()
        loss.backward()
        dense_optimizer.step()
        sparse_optimizer.step()
        if step % 20 == 0 and rank == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
