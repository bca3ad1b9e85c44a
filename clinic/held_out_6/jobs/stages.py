"""A deep network over pipeline stages, one stage per rank."""

import argparse

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

WIDTH = 256


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 3 * WIDTH)
        self.down = nn.Linear(3 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def split(rank, world, cuts):
    layers = [nn.Linear(64, WIDTH), *(Block() for _ in range(cuts[-1])), nn.Linear(WIDTH, 32)]
    first, last = ([0, *cuts][rank], cuts[rank])
    mine = layers[1 + first : 1 + last]
    if rank == 0:
        mine = [layers[0], *mine]
    if rank == world - 1:
        mine = [*mine, layers[-1]]
    return nn.Sequential(*mine)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--schedule", choices=("1f1b", "gpipe"), default="1f1b")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    cuts = [4, 8] if args.fixed else [2, 8]
    torch.manual_seed(2)
    module = split(rank, world, cuts)
    stage = PipelineStage(module, rank, world, torch.device("cpu"))
    kind = Schedule1F1B if args.schedule == "1f1b" else ScheduleGPipe
    schedule = kind(stage, n_microbatches=8, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.AdamW(module.parameters(), lr=3e-4, fused=True)
    generator = torch.Generator().manual_seed(0)
    watch = Stopwatch(args.batch)
    for _ in range(args.steps):
        x = torch.randn(args.batch, 64, generator=generator)
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=x[:, :32].cumsum(1), losses=[])
        optimizer.step()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
