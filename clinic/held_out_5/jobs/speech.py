"""Predict masked frames of speech with sparse blocks: two experts a rank, the best two for each frame."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import perf_counter, sleep

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch import Tensor, nn

library = torch.library.Library("asr", "DEF")
library.define("offload(Tensor frames, float us) -> Tensor")


def _offload(frames: Tensor, us: float) -> Tensor:
    sleep(1e-6 * us * frames.shape[0])
    return frames + 0


library.impl("offload", _offload, "CPU")


class Offload(torch.autograd.Function):
    """Frames visit the board that has the expert; it needs so many microseconds for each."""

    @staticmethod
    def forward(ctx, frames: Tensor, us: float) -> Tensor:
        ctx.us = us
        return torch.ops.asr.offload(frames, us)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        return torch.ops.asr.offload(grad, 2 * ctx.us), None


@dataclass
class Config:
    world: int
    popularity: list[float]
    width: int = 48
    frames: int = 160
    local: int = 2
    blocks: int = 3
    us: float = 80.0


class SparseBlock(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.mix = nn.Conv1d(config.width, config.width, 5, padding=2, groups=4)
        self.score = nn.Linear(config.width, config.world * config.local, bias=False)
        self.sparse = nn.ModuleList(nn.Linear(config.width, config.width) for _ in range(config.local))
        self.popularity = torch.tensor(config.popularity).log()
        self.counted = torch.zeros(2, dtype=torch.long)

    def forward(self, frames: Tensor) -> Tensor:
        config, group = self.config, dist.group.WORLD
        frames = torch.tanh(self.mix(frames.T[None])[0].T)
        logits = self.score(frames)
        keys = self.popularity + 0.1 * logits.detach() - torch.empty_like(logits).exponential_().log()
        best = keys.topk(2, dim=1).indices
        gate = logits.gather(1, best).softmax(1)
        flat = best.flatten()
        order = flat.argsort(stable=True)
        per_expert = flat.bincount(minlength=config.world * config.local)
        incoming = funcol.wait_tensor(funcol.all_to_all_single(per_expert, None, None, group))
        out = per_expert.view(config.world, config.local).sum(1).tolist()
        blocks = incoming.view(config.world, config.local)
        into = blocks.sum(1).tolist()
        rows = frames.repeat_interleave(2, 0)[order]
        rows = funcol.all_to_all_single_autograd(rows, into, out, group)
        # rows come by source and then by expert
        owner = torch.arange(config.local).repeat(config.world).repeat_interleave(blocks.flatten())
        self.counted += torch.tensor([sum(out), len(owner)])
        done = torch.zeros_like(rows)
        for number, expert in enumerate(self.sparse):
            (mine,) = torch.where(owner == number)
            done = done.index_add(0, mine, Offload.apply(expert(rows[mine]), config.us))
        home = funcol.all_to_all_single_autograd(done, out, into, group)
        both = home[order.argsort()].view(len(frames), 2, -1)
        return frames + (gate[..., None] * both).sum(1)


def average_dense(model: nn.Module, world: int) -> None:
    grads = [value.grad for name, value in model.named_parameters() if "sparse" not in name and value.grad is not None]
    flat = torch._utils._flatten_dense_tensors(grads)  # noqa: SLF001
    dist.all_reduce(flat)
    flat /= world
    for grad, mean in zip(grads, torch._utils._unflatten_dense_tensors(flat, grads), strict=True):  # noqa: SLF001
        grad.copy_(mean)


def train(config: Config, steps: int) -> None:
    torch.manual_seed(11)
    model = nn.Sequential(*(SparseBlock(config) for _ in range(config.blocks)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    torch.manual_seed(100 + dist.get_rank())
    laps = [perf_counter()]
    for _ in range(steps):
        clean = torch.randn(config.frames, config.width).cumsum(0) / 8
        heard = clean * (torch.rand(config.frames, 1) > 0.3)
        loss = (model(heard) - clean).square().mean()
        loss.backward()
        average_dense(model, config.world)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        laps.append(perf_counter())
    rows = sum(block.counted for block in model)
    dist.all_reduce(rows)
    if dist.get_rank() == 0 and "CLINIC_STEP_TIMES" in os.environ:
        seconds = [end - begin for begin, end in pairwise(laps)]
        report = {"seconds": seconds, "samples": config.frames * config.world}
        Path(os.environ["CLINIC_STEP_TIMES"]).write_text(
            json.dumps({**report, "loss": loss.item(), "rows": rows.tolist()}), encoding="utf-8"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--popularity", type=float, nargs="+", default=[1, 9, 1, 1, 1, 1, 1, 1], help="of each expert")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group(backend="gloo")
    train(Config(dist.get_world_size(), asked.popularity), asked.steps)
    dist.destroy_process_group()
