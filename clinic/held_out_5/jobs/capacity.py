"""Sparse layers of fixed capacity, as on TPUs: tokens beyond the places of an expert are dropped, the rest is padding.

Three experts a rank; dispatch and combine are products with one-hot masks, so all messages have the same size.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

MODEL, FEED, LOCAL, TOKENS = 40, 80, 3, 240
library = torch.library.Library("grid", "DEF")
library.define("run(Tensor places, float us) -> Tensor")


def _run(places: Tensor, us: float) -> Tensor:
    time.sleep(us * places.shape[0] * places.shape[1] * 1e-6)
    return places.clone()


library.impl("run", _run, "CPU")


class Grid(torch.autograd.Function):
    """The accelerator computes places, full or padded."""

    @staticmethod
    def forward(ctx, places: Tensor) -> Tensor:
        return torch.ops.grid.run(places, 180.0)

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        return torch.ops.grid.run(grad, 360.0)


class Transpose(torch.autograd.Function):
    """(rank, place, width) to the ranks, and what they have for this rank."""

    @staticmethod
    def forward(ctx, value: Tensor) -> Tensor:
        result = torch.empty_like(value)
        dist.all_to_all_single(result, value.contiguous())
        return result

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        result = torch.empty_like(grad)
        dist.all_to_all_single(result, grad.contiguous())
        return result


class Capacity(nn.Module):
    def __init__(self, world: int, factor: float) -> None:
        super().__init__()
        self.world, self.experts = world, LOCAL * world
        self.places = math.ceil(factor * TOKENS / self.experts)
        self.gate = nn.Linear(MODEL, self.experts)
        self.up = nn.Parameter(torch.randn(LOCAL, MODEL, FEED) / 6)
        self.down = nn.Parameter(torch.randn(LOCAL, FEED, MODEL) / 9)
        self.kept = torch.zeros(2)

    def forward(self, tokens: Tensor) -> Tensor:
        scores = self.gate(tokens).softmax(1)
        chosen = (scores.log() + torch.randn_like(scores)).argmax(1)
        one_hot = nn.functional.one_hot(chosen, self.experts)
        place = (one_hot.cumsum(0) * one_hot).sum(1) - 1
        fits = place < self.places
        mask = torch.zeros(len(tokens), self.experts, self.places)
        index = torch.arange(len(tokens))[fits]
        mask[index, chosen[fits], place[fits]] = 1
        dispatched = torch.einsum("tep,tm->epm", mask, tokens)
        local = Transpose.apply(dispatched.view(self.world, LOCAL * self.places, MODEL))
        by_expert = local.view(self.world, LOCAL, self.places, MODEL).transpose(0, 1).reshape(LOCAL, -1, MODEL)
        done = torch.bmm(torch.relu(torch.bmm(Grid.apply(by_expert), self.up)), self.down)
        home = done.view(LOCAL, self.world, self.places, MODEL).transpose(0, 1)
        combined = Transpose.apply(home.reshape(self.world, LOCAL * self.places, MODEL))
        weight = scores.gather(1, chosen[:, None])
        self.kept += torch.tensor([float(dispatched.numel()), float(local.numel())])
        return tokens + weight * torch.einsum("tep,epm->tm", mask, combined.reshape(self.experts, self.places, MODEL))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--capacity-factor", type=float, default=1.25)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(6)
    layers = nn.ModuleList(Capacity(world, asked.capacity_factor) for _ in range(2))
    output = nn.Linear(MODEL, MODEL)
    gates = [*output.parameters(), *(weight for layer in layers for weight in layer.gate.parameters())]
    optimizer = torch.optim.AdamW([*layers.parameters(), *output.parameters()], lr=1e-3, fused=True)
    torch.manual_seed(60 + rank)
    times = [time.perf_counter()]
    for _ in range(asked.steps):
        tokens = torch.randn(TOKENS, MODEL)
        value = tokens
        for layer in layers:
            value = layer(value)
        loss = nn.functional.mse_loss(output(value), tokens.sort(1).values)
        loss.backward()
        flat = torch.cat([weight.grad.flatten() for weight in gates]).div_(world)
        dist.all_reduce(flat)
        for weight, part in zip(gates, flat.split([weight.numel() for weight in gates]), strict=True):
            weight.grad.copy_(part.view_as(weight))
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter())
    rows = sum(layer.kept for layer in layers) / MODEL
    dist.all_reduce(rows)
    if rank == 0 and (name := os.environ.get("CLINIC_STEP_TIMES")):
        laps = [times[i + 1] - times[i] for i in range(asked.steps)]
        report = {"seconds": laps, "samples": world * TOKENS, "loss": loss.item(), "rows": rows.long().tolist()}
        Path(name).write_text(json.dumps(report), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
