"""Pipeline parallelism: one stage per rank, microbatches in the order of 1F1B.

torchrun --nproc-per-node 4 examples/pipeline_1f1b.py
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

WIDTH, BATCH, MICROBATCHES = 256, 512, 8


def stage_of_this_rank() -> nn.Module:
    torch.manual_seed(dist.get_rank())
    return nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH), nn.LayerNorm(WIDTH))


def distance(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square().mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank, stages = dist.get_rank(), dist.get_world_size()
    module = stage_of_this_rank()
    stage = PipelineStage(module, rank, stages, torch.device("cpu"))
    schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=distance)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    batches = torch.Generator().manual_seed(0)
    for step in range(options.steps):
        batch = torch.randn(BATCH, WIDTH, generator=batches)
        losses: list[Tensor] = []
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(batch)
        elif rank == stages - 1:
            schedule.step(target=batch.flip(1), losses=losses)
        else:
            schedule.step()
        optimizer.step()
        if losses and (step + 1) % 10 == 0:
            print(f"step {step + 1}: loss {torch.stack(losses).mean().item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
