"""Semantic segmentation of street scenes with running intersection over union of every class."""

import argparse

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CLASSES = 30


class Dilated(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1, stride=2)
        self.layers = nn.ModuleList(nn.Conv2d(width, width, 3, padding=d, dilation=d) for d in (1, 2, 4))
        self.head = nn.Conv2d(width, CLASSES, 1)

    def forward(self, x):
        x = self.stem(x).relu()
        for layer in self.layers:
            x = x + layer(x).relu()
        return self.head(x)


class JaccardMeter:
    def __init__(self):
        self.inter = torch.zeros(CLASSES)
        self.union = torch.zeros(CLASSES)

    def update(self, predicted, target):
        pairs = torch.bincount((target * CLASSES + predicted).flatten(), minlength=CLASSES**2).view(CLASSES, CLASSES)
        inter = pairs.diagonal().float()
        self.add(inter, pairs.sum(0) + pairs.sum(1) - inter)

    def add(self, inter, union):
        for c in range(CLASSES):
            i, u = inter[c].clone(), union[c].clone()
            dist.all_reduce(i)
            dist.all_reduce(u)
            self.inter[c] += i
            self.union[c] += u


class StackedJaccardMeter(JaccardMeter):
    def add(self, inter, union):
        both = torch.stack([inter, union])
        dist.all_reduce(both)
        self.inter += both[0]
        self.union += both[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(30)
    model = DDP(Dilated())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    meter = (StackedJaccardMeter if args.fixed else JaccardMeter)()
    generator = torch.Generator().manual_seed(dist.get_rank())
    watch = Stopwatch(4)
    for _ in range(args.steps):
        images = torch.rand(4, 3, 48, 48, generator=generator)
        target = (images.mean(1)[:, ::2, ::2] * CLASSES).long().clamp_(0, CLASSES - 1)
        logits = model(images)
        loss = nn.functional.cross_entropy(logits, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meter.update(logits.detach().argmax(1), target)
        watch.lap()
    watch.save()
    if dist.get_rank() == 0:
        print("mean IoU", (meter.inter / meter.union.clamp(min=1)).mean().item())
    dist.destroy_process_group()


main()
