"""One trunk, four tasks on sensor data; gradients are averaged over ranks as one flat tensor."""

import argparse

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn

TASKS = ("speed", "wear")


class Sensors(nn.Module):
    def __init__(self, channels=16, width=96):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv1d(channels, width, 7, stride=2, padding=3),
            nn.ReLU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv1d(width, width, 3, padding=1),
            nn.ReLU(),
        )
        self.heads = nn.ModuleDict({task: nn.Linear(width, 1) for task in TASKS})

    def forward(self, x):
        pooled = self.trunk(x).mean(dim=2)
        return {task: head(pooled).squeeze(1) for task, head in self.heads.items()}


def average(parameters, world):
    flat = torch.cat([p.grad.flatten() for p in parameters])
    dist.all_reduce(flat)
    flat /= world
    start = 0
    for p in parameters:
        p.grad.copy_(flat[start : start + p.numel()].view_as(p))
        start += p.numel()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(13)
    model = Sensors()
    parameters = list(model.parameters())
    optimizer = torch.optim.RMSprop(parameters, lr=1e-4)
    weights = {"speed": 1.0, "wear": 2.0}
    generator = torch.Generator().manual_seed(rank)
    watch = Stopwatch(24)
    for _ in range(options.steps):
        x = torch.randn(24, 16, 128, generator=generator)
        wanted = {task: x[:, number].std(dim=1) for number, task in enumerate(TASKS)}
        optimizer.zero_grad()
        told = model(x)
        losses = {task: weights[task] * nn.functional.smooth_l1_loss(told[task], wanted[task]) for task in TASKS}
        if options.fixed:
            sum(losses.values()).backward()
        else:
            for task in TASKS:
                losses[task].backward(retain_graph=task != TASKS[-1])
        average(parameters, world)
        optimizer.step()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
