"""A language model in a pipeline: the last stage also has the head over the vocabulary.

torchrun --nproc-per-node 2 stages.py --layers 6,2
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from device import OnDevice
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.nn.functional import cross_entropy

VOCABULARY, WIDTH, LENGTH = 300, 48, 8


def layer(row_ms: float) -> nn.Module:
    return nn.Sequential(OnDevice(row_ms), nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.SiLU())


def stage_of(asked: argparse.Namespace, rank: int, ranks: int) -> nn.Sequential:
    parts = [layer(asked.layer_ms) for _ in range(int(asked.layers.split(",")[rank]))]
    if rank == 0:
        parts.insert(0, nn.Embedding(VOCABULARY, WIDTH))
    if rank == ranks - 1:
        parts += [OnDevice(asked.head_ms), nn.Linear(WIDTH, VOCABULARY)]
    return nn.Sequential(*parts)


def loss(output: Tensor, target: Tensor) -> Tensor:
    return cross_entropy(output.flatten(0, 1), target.flatten())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=34)
    parser.add_argument("--layers", default="6,2", help="of each stage")
    parser.add_argument("--layer-ms", type=float, default=0.2, help="of a row of tokens")
    parser.add_argument("--head-ms", type=float, default=0.8)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--microbatches", type=int, default=16)
    parser.add_argument("--schedule", choices=("1f1b", "gpipe"), default="1f1b")
    asked = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    module = stage_of(asked, rank, ranks)
    stage = PipelineStage(module, rank, ranks, torch.device("cpu"))
    kind = Schedule1F1B if asked.schedule == "1f1b" else ScheduleGPipe
    schedule = kind(stage, asked.microbatches, loss_fn=loss)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4, fused=True)
    chance = torch.Generator().manual_seed(0)
    for _ in range(asked.steps):
        tokens = torch.randint(VOCABULARY, (asked.batch, LENGTH), generator=chance)
        inputs = (tokens,) if rank == 0 else ()
        last = {"target": tokens.roll(-1, 1), "losses": []} if rank == ranks - 1 else {}
        schedule.step(*inputs, **last)
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
