"""Points in space to classes of objects; every rank takes a core of its own."""

import argparse
import os

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CORES_PER_RANK = 2


def take_core(options):
    cores = sorted(os.sched_getaffinity(0))
    place = int(os.environ["LOCAL_RANK"])
    if not options.fixed:
        place //= CORES_PER_RANK
    os.sched_setaffinity(0, {cores[place % len(cores)]})


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.points = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 256))
        self.head = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 40))

    def forward(self, cloud):
        return self.head(self.points(cloud).amax(dim=1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    options = parser.parse_args()
    take_core(options)
    dist.init_process_group("gloo")
    torch.manual_seed(33)
    model = DDP(PointNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(dist.get_rank())
    watch = Stopwatch(8)
    for _ in range(options.steps):
        cloud = torch.randn(8, 256, 3, generator=generator)
        kind = torch.randint(40, (8,), generator=generator)
        loss = nn.functional.cross_entropy(model(cloud * (1 + kind.view(-1, 1, 1) / 40)), kind)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
