"""Contrastive learning on small pictures: two views of each, and an online probe of how well views find each other."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, padding=1)
        self.conv1 = nn.Conv2d(32, 64, 3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(64, 128, 3, stride=2, padding=1)
        self.project = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 64))

    def forward(self, x):
        x = F.relu(self.stem(x))
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        return F.normalize(self.project(x.mean(dim=(2, 3))), dim=1)


def augment(x, generator):
    x = x + 0.1 * torch.randn(x.shape, generator=generator)
    if torch.rand((), generator=generator) < 0.5:
        x = x.flip(3)
    return x.roll(int(torch.randint(-3, 4, (), generator=generator)), dims=2)


def nt_xent(first, second, temperature=0.2):
    both = torch.cat([first, second])
    similar = both @ both.T / temperature
    similar.fill_diagonal_(-1e9)
    count = len(first)
    return F.cross_entropy(similar, (torch.arange(2 * count) + count) % (2 * count)), similar


def top1(similar):
    count = len(similar) // 2
    return (similar.argmax(dim=1) == (torch.arange(2 * count) + count) % (2 * count)).float().mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(21)
    model = DDP(Backbone())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
    generator = torch.Generator().manual_seed(dist.get_rank())
    watch = Stopwatch(args.batch)
    running = torch.zeros(())
    for _ in range(args.steps):
        pictures = torch.rand(args.batch, 3, 24, 24, generator=generator)
        views = torch.cat([augment(pictures, generator), augment(pictures, generator)])
        loss, similar = nt_xent(*model(views).chunk(2))
        optimizer.zero_grad()
        loss.backward()
        if not args.fixed:
            with torch.no_grad():
                _, similar = nt_xent(*model.module(views).chunk(2))
        running.lerp_(top1(similar.detach()), 0.05)
        optimizer.step()
        watch.lap()
    watch.save()
    if dist.get_rank() == 0:
        print(f"agreement {running.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
