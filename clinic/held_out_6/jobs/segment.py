"""Segmentation with a small U-Net; four micro-batches make one step."""

import argparse
import contextlib

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def double(inside, outside):
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1), nn.ReLU(), nn.Conv2d(outside, outside, 3, padding=1), nn.ReLU()
    )


class UNet(nn.Module):
    def __init__(self, width=24, classes=5):
        super().__init__()
        self.down1, self.down2 = double(1, width), double(width, 2 * width)
        self.bottom = nn.Sequential(double(2 * width, 8 * width), double(8 * width, 16 * width))
        self.up2 = nn.ConvTranspose2d(16 * width, 2 * width, 2, stride=2)
        self.join2 = double(4 * width, 2 * width)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.join1 = double(2 * width, width)
        self.out = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        one = self.down1(x)
        two = self.down2(nn.functional.max_pool2d(one, 2))
        x = self.bottom(nn.functional.max_pool2d(two, 2))
        x = self.join2(torch.cat([self.up2(x), two], dim=1))
        return self.out(self.join1(torch.cat([self.up1(x), one], dim=1)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(UNet())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    generator = torch.Generator().manual_seed(dist.get_rank())
    watch = Stopwatch(args.accumulate)
    for _ in range(args.steps):
        optimizer.zero_grad()
        for micro in range(args.accumulate):
            picture = torch.randn(1, 1, 16, 16, generator=generator)
            mask = (picture[:, 0] * 2).round().clamp(-2, 2).long() + 2
            is_last = micro + 1 == args.accumulate
            with model.no_sync() if args.fixed and not is_last else contextlib.nullcontext():
                loss = nn.functional.cross_entropy(model(picture), mask) / args.accumulate
                loss.backward()
        optimizer.step()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
