"""Rank offers in a feed whose taste moves through the run; a category's rows go to the rank that knows it."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

CATEGORIES = 40
ROWS = 288
WIDTH = 40
library = torch.library.Library("feed", "FRAGMENT")
library.define("score(Tensor rows, int ns) -> Tensor")


@torch.library.impl(library, "score", "CPU")
def score(rows: Tensor, ns: int) -> Tensor:
    deadline = time.perf_counter_ns() + ns * rows.size(0)
    answer = rows.clone()
    time.sleep(max(deadline - time.perf_counter_ns(), 0) / 1e9)
    return answer


class Score(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, ns: int) -> Tensor:
        ctx.ns = ns
        return torch.ops.feed.score(rows, ns)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return torch.ops.feed.score(grad, 2 * ctx.ns), None


class Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, plan: tuple[list[int], list[int]]) -> Tensor:
        ctx.plan = plan
        arrived = rows.new_empty(sum(plan[1]), rows.size(1))
        dist.all_to_all_single(arrived, rows, plan[1], plan[0])
        return arrived

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        out, into = ctx.plan
        returned = grad.new_empty(sum(out), grad.size(1))
        dist.all_to_all_single(returned, grad.contiguous(), out, into)
        return returned, None


class Feed:
    """Offers of a day. Late in the run most are of the categories of one season."""

    def __init__(self, seed: int, days: int) -> None:
        self.random = torch.Generator().manual_seed(seed)
        self.days = days

    def day(self, number: int) -> tuple[Tensor, Tensor, Tensor]:
        season = 0.05 + 0.75 * number / (self.days - 1)
        category = torch.randint(CATEGORIES, (ROWS,), generator=self.random)
        seasonal = 10 + torch.randint(10, (ROWS,), generator=self.random)
        is_seasonal = torch.rand(ROWS, generator=self.random) < season
        offers = torch.rand(ROWS, 16, generator=self.random)
        return torch.where(is_seasonal, seasonal, category), offers, (offers.mean(1) > 0.5).float()


class Ranker(nn.Module):
    def __init__(self, placement: str, world: int) -> None:
        super().__init__()
        self.placement, self.world = placement, world
        self.inputs = nn.Linear(16, WIDTH)
        self.category = nn.Embedding(CATEGORIES, WIDTH)
        self.tower = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self.output = nn.Linear(WIDTH, 1)
        self.moved = torch.zeros(2, dtype=torch.int64)

    def place(self, category: Tensor) -> Tensor:
        """Return the rank whose tower gets a row: that of its category, or by turns."""
        if self.placement == "turns":
            return torch.arange(len(category)) % self.world
        return category * self.world // CATEGORIES

    def forward(self, category: Tensor, offers: Tensor) -> Tensor:
        rows = self.inputs(offers) + self.category(category)
        rank = self.place(category)
        order = torch.argsort(rank)
        out = torch.bincount(rank, minlength=self.world)
        into = torch.empty_like(out)
        dist.all_to_all_single(into, out)
        plan = out.tolist(), into.tolist()
        guests = Scatter.apply(rows[order], plan)
        self.moved += torch.tensor([len(rows), len(guests)])
        scored = Scatter.apply(Score.apply(self.tower(guests), 210_000), plan[::-1])
        return self.output(rows + scored[order.argsort()]).squeeze(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--placement", choices=("category", "turns"), default="category")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    model = Ranker(args.placement, dist.get_world_size())
    shared = [value for name, value in model.named_parameters() if not name.startswith("tower")]
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05, foreach=True)
    feed = Feed(dist.get_rank(), args.steps)
    ends = [time.monotonic()]
    for number in range(args.steps):
        category, offers, clicked = feed.day(number)
        loss = nn.functional.binary_cross_entropy_with_logits(model(category, offers), clicked)
        optimizer.zero_grad()
        loss.backward()
        with torch.no_grad():
            flat = nn.utils.parameters_to_vector([value.grad for value in shared]) / dist.get_world_size()
            dist.all_reduce(flat)
            for value, mean in zip(shared, flat.split([value.numel() for value in shared]), strict=True):
                value.grad.copy_(mean.view_as(value))
        optimizer.step()
        ends.append(time.monotonic())
    dist.all_reduce(model.moved)
    if dist.get_rank() == 0 and os.environ.get("CLINIC_STEP_TIMES"):
        laps = torch.tensor(ends, dtype=torch.float64).diff().tolist()
        text = json.dumps({"seconds": laps, "samples": 4 * ROWS, "loss": loss.item(), "rows": model.moved.tolist()})
        Path(os.environ["CLINIC_STEP_TIMES"]).write_text(text, encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
