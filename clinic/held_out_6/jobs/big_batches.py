"""A large batch in four parts; gradients travel with the last part."""

import argparse
import contextlib

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

PARTS, PART = 4, 96


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(
        nn.Sequential(
            nn.Linear(128, 512),
            nn.LayerNorm(512),
            nn.GELU(),
            nn.Linear(512, 512),
            nn.LayerNorm(512),
            nn.GELU(),
            nn.Linear(512, 50),
        ),
        gradient_as_bucket_view=True,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(dist.get_rank())
    watch = Stopwatch(PARTS * PART)
    for _ in range(args.steps):
        optimizer.zero_grad()
        for part in range(PARTS):
            x = torch.randn(PART, 128, generator=generator)
            with contextlib.nullcontext() if part == PARTS - 1 else model.no_sync():
                (nn.functional.cross_entropy(model(x), x[:, :50].argmax(1)) / PARTS).backward()
        optimizer.step()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


main()
