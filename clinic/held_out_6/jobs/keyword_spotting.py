"""Spot keywords in log-mel pictures with depthwise convolutions."""

import argparse
import contextlib

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def separable(width):
    return nn.Sequential(
        nn.Conv2d(width, width, 3, padding=1, groups=width),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, width, 1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
    )


def network(width=48, keywords=12):
    return nn.Sequential(
        nn.Conv2d(1, width, (10, 4), stride=2, padding=(5, 1)),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        *(separable(width) for _ in range(3)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, keywords),
    )


def batches(rank, size=16):
    generator = torch.Generator().manual_seed(rank)
    while True:
        label = torch.randint(12, (size,), generator=generator)
        yield torch.randn(size, 1, 49, 40, generator=generator) + label.view(-1, 1, 1, 1) / 12, label


def look(fixed):
    if fixed:
        return contextlib.nullcontext()
    return torch.autograd.profiler.profile(record_shapes=True, with_stack=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(17)
    model = DDP(network(), broadcast_buffers=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    source = batches(dist.get_rank())
    watch = Stopwatch(16)
    for _ in range(args.steps):
        x, y = next(source)
        with look(args.fixed):
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
