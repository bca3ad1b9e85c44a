"""Train a transformer in a pipeline: one stage per rank.

torchrun --nproc-per-node 3 stages.py --layers 2,2,2 --microbatches 8
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from loop import Clock, arguments, start
from models import Block
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

SCHEDULES = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}


def distance(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square().mean()


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--layers", default="2,2,2", help="of each stage")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--length", type=int, default=16)
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--schedule", choices=tuple(SCHEDULES), default="1f1b")
    asked = parser.parse_args()
    rank = start(asked)
    last = dist.get_world_size() - 1
    layers = int(asked.layers.split(",")[rank])
    module = nn.Sequential(*(Block(asked.width, asked.device_ms) for _ in range(layers)))
    stage = PipelineStage(module, rank, last + 1, torch.device("cpu"))
    schedule = SCHEDULES[asked.schedule](stage, asked.microbatches, loss_fn=distance)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4, fused=True)
    chance = torch.Generator().manual_seed(asked.seed)
    clock = Clock(asked.batch)
    for _ in range(asked.steps):
        batch = torch.randn(asked.batch, asked.length, asked.width, generator=chance)
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(batch)
        elif rank == last:
            schedule.step(target=batch.flip(1), losses=[])
        else:
            schedule.step()
        optimizer.step()
        clock.step()
    clock.close()


if __name__ == "__main__":
    main()
