"""A small student of birdsong learns from a teacher whose weights are fixed."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def listener(width):
    return nn.Sequential(
        nn.Conv2d(1, width, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(2 * width, 4 * width, 3, 2, 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, 30),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=2.0)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    teacher = listener(32).eval().requires_grad_(False)
    model = DDP(listener(24))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(dist.get_rank())
    watch = Stopwatch(16)
    for _ in range(args.steps):
        sound = torch.randn(16, 1, 40, 64, generator=generator)
        with torch.inference_mode():
            soft = (teacher(sound) / args.temperature).log_softmax(-1)
        own = (model(sound) / args.temperature).log_softmax(-1)
        loss = F.kl_div(own, soft.clone(), log_target=True, reduction="batchmean") * args.temperature**2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
