"""Two equal pipeline stages with 1F1B."""

import argparse

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


def stage(rank, world, width=320):
    torch.manual_seed(rank)
    layers = [nn.Linear(width, width) if i % 2 == 0 else nn.SiLU() for i in range(12)]
    if rank == world - 1:
        layers.append(nn.Linear(width, 8))
    return nn.Sequential(*layers)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    module = stage(rank, world)
    schedule = Schedule1F1B(
        PipelineStage(module, rank, world, torch.device("cpu")), n_microbatches=8, loss_fn=nn.functional.mse_loss
    )
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-4, fused=True)
    generator = torch.Generator().manual_seed(5)
    watch = Stopwatch(512)
    for _ in range(args.steps):
        x = torch.randn(512, 320, generator=generator)
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=x[:, :8].abs())
        optimizer.step()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


main()
