"""A wide click model; gradients are summed over ranks in chunks with care for the last digits."""

import argparse

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn


class ClickModel(nn.Module):
    def __init__(self, fields=12, rows=2000, width=16):
        super().__init__()
        self.offsets = torch.arange(fields) * rows
        self.tables = nn.Embedding(fields * rows, width)
        self.deep = nn.Sequential(
            nn.Linear(fields * width, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1)
        )

    def forward(self, ids):
        return self.deep(self.tables(ids + self.offsets).flatten(1)).squeeze(1)


class GradientSum:
    """Mean of the gradients of all ranks, in pieces of some megabytes."""

    def __init__(self, parameters, precision, piece=1 << 20):
        self.parameters = list(parameters)
        self.precision = precision
        self.piece = piece

    @torch.no_grad()
    def __call__(self):
        flat = torch.cat([p.grad.view(-1) for p in self.parameters]).to(self.precision)
        for part in flat.split(self.piece):
            dist.all_reduce(part)
        flat /= dist.get_world_size()
        start = 0
        for p in self.parameters:
            p.grad.copy_(flat[start : start + p.numel()].view_as(p))
            start += p.numel()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = ClickModel()
    average = GradientSum(model.parameters(), torch.float32 if args.fixed else torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(dist.get_rank())
    watch = Stopwatch(64)
    for _ in range(args.steps):
        ids = torch.randint(2000, (64, 12), generator=generator)
        clicked = (ids[:, 0] % 3 == 0).float()
        loss = nn.functional.binary_cross_entropy_with_logits(model(ids), clicked)
        model.zero_grad()
        loss.backward()
        average()
        optimizer.step()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
