"""Detection in small: pictures change their size every few steps, the same on all ranks."""

import argparse
import random

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Detector(nn.Module):
    def __init__(self, width=32, anchors=3):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1),
            nn.SiLU(),
            nn.Conv2d(width, 2 * width, 3, 2, 1),
            nn.SiLU(),
            nn.Conv2d(2 * width, 4 * width, 3, 2, 1),
            nn.SiLU(),
        )
        self.boxes = nn.Conv2d(4 * width, 5 * anchors, 1)

    def forward(self, x):
        return self.boxes(self.body(x)).unflatten(1, (-1, 5))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(Detector())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    chooser = random.Random(3)
    generator = torch.Generator().manual_seed(dist.get_rank())
    size = 64
    watch = Stopwatch(6)
    for number in range(args.steps):
        if number % 5 == 0:
            size = chooser.choice((56, 64, 72))
        x = torch.rand(6, 3, size, size, generator=generator)
        found = model(x)
        is_object = (torch.rand(found.shape[:2] + found.shape[3:], generator=generator) < 0.1).float()
        fit = (found[:, :, :4].square().sum(2) * is_object).mean()
        loss = fit + nn.functional.binary_cross_entropy_with_logits(found[:, :, 4], is_object)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
