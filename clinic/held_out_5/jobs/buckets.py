"""Sequences are sorted into buckets by length; all ranks take the same bucket in a step, and routing is even.

torchrun --nproc-per-node 4 buckets.py
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import _functional_collectives as functional

FEATURES = 56
LENGTHS = (24, 32, 40, 48, 56)
SEQUENCES = 8


@torch.library.custom_op("remote::compute", mutates_args=())
def compute(rows: Tensor, us: float) -> Tensor:
    time.sleep(us * rows.size(0) / 1_000_000)
    return rows.clone()


compute.register_autograd(
    lambda ctx, grad: (compute(grad, ctx.us), None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "us", 2 * inputs[1]),
)


class EvenMixture(nn.Module):
    """Tokens are dealt to experts by a hash of where they are, so that no router has to learn."""

    def __init__(self, ranks: int) -> None:
        super().__init__()
        self.ranks = ranks
        self.norm = nn.LayerNorm(FEATURES)
        self.own_up, self.own_down = nn.Linear(FEATURES, 96), nn.Linear(96, FEATURES)
        self.flow = [0, 0]

    def forward(self, states: Tensor) -> Tensor:
        rows = self.norm(states).flatten(0, 1)
        expert = (torch.arange(len(rows)) * 2654435761 >> 4) % self.ranks
        order = torch.argsort(expert, stable=True)
        sizes = torch.bincount(expert, minlength=self.ranks)
        theirs = functional.wait_tensor(functional.all_to_all_single(sizes, None, None, dist.group.WORLD))
        out, into = sizes.tolist(), theirs.tolist()
        guests = functional.all_to_all_single_autograd(rows[order], into, out, dist.group.WORLD)
        self.flow = [self.flow[0] + len(rows), self.flow[1] + len(guests)]
        guests = compute(self.own_down(torch.relu(self.own_up(guests))), 130.0)
        home = functional.all_to_all_single_autograd(guests, out, into, dist.group.WORLD)
        return states + home[order.argsort()].view_as(states)


class Tagger(nn.Module):
    def __init__(self, ranks: int) -> None:
        super().__init__()
        self.inputs = nn.Embedding(70, FEATURES)
        self.first, self.second = EvenMixture(ranks), EvenMixture(ranks)
        self.past = nn.Linear(FEATURES, FEATURES)
        self.tags = nn.Linear(FEATURES, 9)

    def forward(self, words: Tensor) -> Tensor:
        states = self.inputs(words)
        states = states + torch.tanh(self.past(states.roll(1, 1)))
        return self.tags(self.second(self.first(states)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(4)
    model = Tagger(ranks)
    dense = [weight for name, weight in model.named_parameters() if ".own_" not in name]
    optimizer = torch.optim.NAdam(model.parameters(), lr=1e-3, foreach=True)
    bucket = random.Random(31)
    torch.manual_seed(rank)
    spent: list[float] = []
    for _ in range(args.steps):
        began = time.perf_counter()
        words = torch.randint(70, (SEQUENCES, bucket.choice(LENGTHS)))
        loss = nn.functional.cross_entropy(model(words).flatten(0, 1), (words % 9).flatten())
        loss.backward()
        gradients = [weight.grad for weight in dense if weight.grad is not None]
        mean = torch.cat([gradient.reshape(-1) for gradient in gradients]) / ranks
        dist.all_reduce(mean)
        for gradient, part in zip(gradients, mean.split([each.numel() for each in gradients]), strict=True):
            gradient.copy_(part.view(gradient.shape))
        optimizer.step()
        optimizer.zero_grad()
        spent.append(time.perf_counter() - began)
    rows = torch.tensor([model.first.flow, model.second.flow]).sum(0)
    dist.all_reduce(rows)
    place = os.environ.get("CLINIC_STEP_TIMES")
    if place and rank == 0:
        answer = {"seconds": spent, "samples": SEQUENCES * ranks, "loss": loss.item(), "rows": rows.tolist()}
        Path(place).write_text(json.dumps(answer), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
