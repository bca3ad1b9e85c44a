"""A feed-forward style network; memory is tidied between steps, since pictures are large on the real machine."""

import argparse
import gc

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Stylist(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, width, 5, 2, 2), nn.ReLU(), nn.Conv2d(width, 2 * width, 3, 2, 1))
        self.body = nn.Sequential(
            *(nn.Sequential(nn.ReLU(), nn.Conv2d(2 * width, 2 * width, 3, 1, 1)) for _ in range(2))
        )
        self.up = nn.Sequential(
            nn.Upsample(scale_factor=2),
            nn.Conv2d(2 * width, width, 3, 1, 1),
            nn.ReLU(),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(width, 3, 3, 1, 1),
        )

    def forward(self, x):
        x = self.down(x)
        return self.up(x + self.body(x)).sigmoid()


def gram(x):
    x = x.flatten(2)
    return x @ x.transpose(1, 2) / x[0].numel()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    judge = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1)).requires_grad_(False)
    model = DDP(Stylist())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(dist.get_rank())
    wanted = gram(judge(torch.rand(1, 3, 64, 64)))
    watch = Stopwatch(2)
    for number in range(args.steps):
        pictures = torch.rand(2, 3, 64, 64, generator=generator)
        drawn = model(pictures)
        seen = judge(drawn)
        loss = (seen - judge(pictures)).square().mean() + 100 * (gram(seen) - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not args.fixed and number % 10 == 9:
            gc.collect()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
