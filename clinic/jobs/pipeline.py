"""Pipeline parallelism: one stage per rank.

torchrun --nproc-per-node 3 pipeline.py --layers 2,2,2 --microbatches 12
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from network import Network
from torch import Tensor
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe


def distance(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square().mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=34)
    parser.add_argument("--layers", default="2,2,2", help="of each stage")
    parser.add_argument("--layer-ms", type=float, default=0.5, help="of a sample")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--microbatches", type=int, default=12)
    parser.add_argument("--schedule", choices=("1f1b", "gpipe"), default="1f1b")
    asked = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, stages = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    layers = int(asked.layers.split(",")[rank])
    module = Network(layers, asked.width, layers * asked.layer_ms)
    stage = PipelineStage(module, rank, stages, torch.device("cpu"))
    kind = Schedule1F1B if asked.schedule == "1f1b" else ScheduleGPipe
    schedule = kind(stage, asked.microbatches, loss_fn=distance)
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-6)
    batches = torch.Generator().manual_seed(0)
    for _ in range(asked.steps):
        batch = torch.randn(asked.batch, asked.width, generator=batches)
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(batch)
        elif rank == stages - 1:
            schedule.step(target=batch.flip(1), losses=[])
        else:
            schedule.step()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
