"""Topics of documents decide which two experts read them; three micro-batches make an update.

The packer puts whole documents in a micro-batch, in the order in which they come or so that topics are spread.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import deque
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

TOPICS, LENGTH, DOCUMENTS, MICRO, WIDTH = 16, 24, 4, 3, 48
SECONDS_PER_ROW = 8e-5


class Packed(NamedTuple):
    words: Tensor
    topic: Tensor


class Packer:
    """All ranks draw from one stream, as a shared file system gives it: a topic comes in runs."""

    def __init__(self, policy: str) -> None:
        self.policy, self.random = policy, torch.Generator().manual_seed(99)

    def pack(self) -> Packed:
        rank, world = dist.get_rank(), dist.get_world_size()
        order = torch.randperm(TOPICS, generator=self.random)
        weights = 1 / (1 + torch.arange(TOPICS, dtype=torch.float)) ** 1.6
        drawn = order[torch.multinomial(weights, world * DOCUMENTS, replacement=True, generator=self.random)]
        words = torch.randint(200, (world * DOCUMENTS, LENGTH), generator=self.random)
        if self.policy == "spread":
            drawn = torch.arange(world * DOCUMENTS) % TOPICS
        mine = slice(rank * DOCUMENTS, (rank + 1) * DOCUMENTS)
        return Packed(words[mine].flatten(), drawn[mine].repeat_interleave(LENGTH))


@torch.library.custom_op("reader::read", mutates_args=())
def read(rows: Tensor, share: float) -> Tensor:
    time.sleep(SECONDS_PER_ROW * share * len(rows))
    return rows.clone()


def _remember(ctx, inputs: tuple, output: Tensor) -> None:
    ctx.share = inputs[1]


read.register_autograd(lambda ctx, grad: (read(grad, 2 * ctx.share), None), setup_context=_remember)


def ship(rows: Tensor, sizes: tuple[list[int], list[int]]) -> Tensor:
    sent, got = sizes
    box = torch.empty(sum(got), WIDTH)
    dist.all_to_all_single(box, rows.contiguous(), got, sent)
    return box


class Ship(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows: Tensor, sizes: tuple[list[int], list[int]]) -> Tensor:
        ctx.sizes = sizes
        return ship(rows, sizes)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        return ship(grad, ctx.sizes[::-1]), None


class TopicExperts(nn.Module):
    """Topic t is of expert t % ranks; every second topic is read by the next expert too, others twice by their own."""

    def __init__(self) -> None:
        super().__init__()
        self.expert_in, self.expert_out = nn.Linear(WIDTH, 72), nn.Linear(72, WIDTH)
        self.trust = nn.Linear(WIDTH, 2)
        self.ledger = [0, 0]

    def forward(self, rows: Tensor, topic: Tensor) -> Tensor:
        world = dist.get_world_size()
        primary = topic % world
        neighbour = (primary + 1 + topic // world % 3) % world
        target = torch.stack([primary, torch.where(torch.rand(len(topic)) < 0.4, neighbour, primary)], 1).flatten()
        order = target.argsort()
        leaving = target.bincount(minlength=world)
        coming = torch.empty_like(leaving)
        dist.all_to_all_single(coming, leaving)
        sizes = leaving.tolist(), coming.tolist()
        guests = Ship.apply(rows[order // 2], sizes)
        self.ledger[0] += len(target)
        self.ledger[1] += len(guests)
        hidden = read(torch.relu(self.expert_in(guests)), 0.5)
        answers = Ship.apply(read(self.expert_out(hidden), 0.5), sizes[::-1])
        pair = answers[order.argsort()].view(-1, 2, WIDTH)
        return rows + torch.einsum("nk,nkd->nd", self.trust(rows).softmax(1), pair)


class Library(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(200, WIDTH)
        self.context = nn.Conv1d(WIDTH, WIDTH, 7, padding=3, groups=WIDTH)
        self.readers = nn.ModuleList([TopicExperts(), TopicExperts()])
        self.verdict = nn.Linear(WIDTH, TOPICS)

    def forward(self, page: Packed) -> Tensor:
        rows = self.words(page.words)
        rows = rows + self.context(rows.t()).t()
        for reader in self.readers:
            rows = reader(rows, page.topic)
        return self.verdict(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--pack", choices=("in-order", "spread"), default="in-order")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    library, packer = Library(), Packer(options.pack)
    everywhere = [value for name, value in library.named_parameters() if "expert_" not in name]
    optimizer = torch.optim.SGD(library.parameters(), lr=0.05, fused=True)
    torch.manual_seed(dist.get_rank())
    clock, losses = deque([time.perf_counter()]), []
    for _ in range(options.steps):
        for _ in range(MICRO):
            page = packer.pack()
            loss = nn.functional.cross_entropy(library(page), page.topic)
            (loss / MICRO).backward()
            losses.append(loss.detach())
        with torch.no_grad():
            bucket = torch.cat([value.grad.ravel() for value in everywhere])
            dist.all_reduce(bucket, op=dist.ReduceOp.SUM)
            for value, part in zip(everywhere, bucket.split([v.numel() for v in everywhere]), strict=True):
                value.grad = part.view_as(value) / dist.get_world_size()
        optimizer.step()
        optimizer.zero_grad()
        clock.append(time.perf_counter())
    ledger = torch.tensor([reader.ledger for reader in library.readers]).sum(0)
    dist.all_reduce(ledger)
    target = os.environ.get("CLINIC_STEP_TIMES")
    if target and dist.get_rank() == 0:
        laps = [clock[i + 1] - clock[i] for i in range(options.steps)]
        summary = {"seconds": laps, "samples": 4 * MICRO * DOCUMENTS, "loss": losses[-1].item()}
        Path(target).write_text(json.dumps({**summary, "rows": ledger.tolist()}), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
