"""Softmax regression with hidden layers on four ranks; a checkpoint of the small model is written now and then."""

import argparse
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--save-every", type=int, default=30)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(256, 384), nn.ReLU(), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, 20)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(rank)
    watch = Stopwatch(320)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1, args.steps + 1):
            x = torch.randn(320, 256, generator=generator)
            loss = nn.functional.cross_entropy(model(x), x[:, :20].argmax(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0 and number % args.save_every == 0:
                torch.save(model.module.state_dict(), Path(folder) / "last.pt")
            watch.lap()
    watch.save()
    dist.destroy_process_group()


main()
