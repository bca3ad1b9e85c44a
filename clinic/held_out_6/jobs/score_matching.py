"""Score matching on vectors, with averaged weights."""

import argparse
import copy

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class ScoreNet(nn.Module):
    def __init__(self, size=64, width=384):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(size + 1, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, size),
        )

    def forward(self, x, sigma):
        return self.net(torch.cat([x, sigma.log()], dim=1)) / sigma


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = ScoreNet()
    averaged = copy.deepcopy(net).requires_grad_(False)
    model = DDP(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-4, fused=True)
    generator = torch.Generator().manual_seed(dist.get_rank())
    old, new = list(averaged.parameters()), list(net.parameters())
    watch = Stopwatch(256)
    for _ in range(args.steps):
        x = torch.randn(256, 64, generator=generator).sign()
        sigma = 10 ** (torch.rand(256, 1, generator=generator) * 2 - 1.5)
        noise = torch.randn(256, 64, generator=generator)
        loss = (sigma * model(x + sigma * noise, sigma) + noise).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(old, new, 0.001)
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
