"""Metric learning with the hardest triplets of a batch."""

import argparse

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def hardest(x, kind, margin=0.2):
    distance = torch.cdist(x, x)
    same = kind.unsqueeze(0) == kind.unsqueeze(1)
    far = distance.masked_fill(~same, 0).amax(1)
    near = distance.masked_fill(same, 1e9).amin(1)
    return (far - near + margin).relu().mean()


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(6, 64, 7, 2, 3),
            nn.ReLU(),
            nn.Conv1d(64, 128, 5, 2, 2),
            nn.ReLU(),
            nn.Conv1d(128, 128, 3, 2, 1),
        )
        self.out = nn.Linear(128, 64)

    def forward(self, x):
        return nn.functional.normalize(self.out(self.conv(x).mean(2)), dim=1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(Embedder())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, fused=True)
    generator = torch.Generator().manual_seed(dist.get_rank())
    watch = Stopwatch(48)
    for _ in range(args.steps):
        kind = torch.randint(8, (48,), generator=generator)
        x = torch.randn(48, 6, 128, generator=generator) + kind.view(-1, 1, 1) / 4
        loss = hardest(model(x), kind)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.lap()
    watch.save()
    dist.destroy_process_group()
