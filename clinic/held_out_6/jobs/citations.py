"""GraphSAGE on a citation graph with sampled neighbours; a worker draws the next batch."""

import argparse

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

PAPERS, FEATURES, FAN, BATCH = 20_000, 64, 5, 160


class Sampled(IterableDataset):
    def __init__(self, seed):
        self.seed = seed
        generator = torch.Generator().manual_seed(0)
        self.neighbours = torch.randint(PAPERS, (PAPERS, 20), generator=generator)

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed)
        while True:
            seeds = torch.randint(PAPERS, (BATCH,), generator=generator)
            near = self.neighbours[seeds][:, torch.randperm(20, generator=generator)[:FAN]]
            far = self.neighbours[near][:, :, torch.randperm(20, generator=generator)[:FAN]]
            yield seeds, near, far


class Sage(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.one, self.two = nn.Linear(2 * FEATURES, width), nn.Linear(2 * width, width)
        self.out = nn.Linear(width, 7)

    def forward(self, own, near, far):
        middle = self.one(torch.cat([near, far.mean(2)], -1)).relu()
        self_ = self.one(torch.cat([own, near.mean(1)], -1)).relu()
        return self.out(self.two(torch.cat([self_, middle.mean(1)], -1)).relu())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    features = torch.randn(PAPERS, FEATURES)
    loader = DataLoader(Sampled(dist.get_rank()), batch_size=None, num_workers=1, prefetch_factor=4)
    model = DDP(Sage())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, fused=True)
    watch = Stopwatch(BATCH)
    for _, (seeds, near, far) in zip(range(args.steps), loader, strict=False):
        loss = nn.functional.cross_entropy(model(features[seeds], features[near], features[far]), seeds % 7)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
