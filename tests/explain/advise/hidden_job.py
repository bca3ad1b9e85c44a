"""A job with DDP or FSDP that trains a small network, and loses time as it is asked to.

torchrun --nproc-per-node 2 hidden_job.py --anomaly
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import threading
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--anomaly", choices=("on", "context"))
    parser.add_argument("--find-unused", action="store_true")
    parser.add_argument("--buffers", type=int, default=0, help="of so many values each layer has two")
    parser.add_argument("--no-broadcast", action="store_true")
    parser.add_argument("--busy-thread", action="store_true")
    parser.add_argument("--save-every", type=int, default=0)
    parser.add_argument("--save-mb", type=int, default=100)
    parser.add_argument("--evaluate-every", type=int, default=0)
    parser.add_argument("--evaluate-batches", type=int, default=20)
    parser.add_argument("--temporary-mb", type=int, default=0, help="allocated and freed in each layer")
    parser.add_argument("--pin", help="RANK:CORE,RANK:CORE")
    parser.add_argument("--fsdp", choices=("layers", "blocks"))
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--hold", action="store_true", help="reduce and reshard in the last microbatch alone")
    parser.add_argument("--experts", choices=("even", "hot"))
    return parser.parse_args()


class Layer(nn.Module):
    def __init__(self, asked: argparse.Namespace) -> None:
        super().__init__()
        self.linear = nn.Linear(asked.width, asked.width)
        self.temporary = asked.temporary_mb * 250_000
        for name in ("mean", "spread") if asked.buffers else ():
            self.register_buffer(name, torch.zeros(asked.buffers))

    def forward(self, x: Tensor) -> Tensor:
        if self.temporary:
            x = x + torch.ones(self.temporary)[0]
        return torch.tanh(self.linear(x))


class Exchange(torch.autograd.Function):
    """Rows go to the ranks of their experts, and gradients back."""

    @staticmethod
    def forward(context: Any, x: Tensor, sends: list[int], receives: list[int]) -> Tensor:
        context.sizes = sends, receives
        found = x.new_empty(sum(receives), x.shape[1])
        dist.all_to_all_single(found, x.contiguous(), receives, sends)
        return found

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Any:
        sends, receives = context.sizes
        found = gradients[0].new_empty(sum(sends), gradients[0].shape[1])
        dist.all_to_all_single(found, gradients[0].contiguous(), sends, receives)
        return found, None, None


class Experts(nn.Module):
    """An expert on each rank; a router that sends half of the rows to each, or nearly all to the first."""

    def __init__(self, asked: argparse.Namespace) -> None:
        super().__init__()
        self.expert = nn.Sequential(
            nn.Linear(asked.width, 4 * asked.width), nn.GELU(), nn.Linear(4 * asked.width, asked.width)
        )
        self.is_hot = asked.experts == "hot"

    def forward(self, x: Tensor) -> Tensor:
        world, rows = dist.get_world_size(), x.shape[0]
        others = rows // 10 if self.is_hot else rows // world
        sends = [rows - others * (world - 1), *[others] * (world - 1)]
        counts = torch.tensor(sends)
        incoming = torch.empty_like(counts)
        dist.all_to_all_single(incoming, counts)
        receives = incoming.tolist()
        worked = self.expert(Exchange.apply(x, sends, receives))
        return x + Exchange.apply(worked, receives, sends)


def model_of(asked: argparse.Namespace) -> nn.Module:
    made: list[nn.Module] = [Experts(asked) if asked.experts else Layer(asked) for _ in range(asked.layers)]
    model = nn.Sequential(*made)
    if asked.fsdp:
        from torch.distributed.fsdp import fully_shard

        if asked.fsdp == "layers":
            for layer in made:
                fully_shard(layer)
        return fully_shard(model)
    if asked.experts:
        return model
    return DistributedDataParallel(
        model, find_unused_parameters=asked.find_unused, broadcast_buffers=not asked.no_broadcast
    )


def count() -> None:
    number = 0
    while True:
        number += 1


def main() -> None:
    asked = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if asked.pin:
        os.sched_setaffinity(0, {int(dict(pair.split(":") for pair in asked.pin.split(","))[str(rank)])})
    model = model_of(asked)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    ballast = torch.zeros(asked.save_mb * 250_000) if asked.save_every else None
    if asked.anomaly == "on":
        torch.autograd.set_detect_anomaly(True)
    if asked.busy_thread:
        threading.Thread(target=count, name="metrics", daemon=True).start()
    data = torch.randn(asked.batch, asked.width)
    with tempfile.TemporaryDirectory() as folder:
        for step in range(asked.steps):
            train(asked, model, data)
            optimizer.step()
            optimizer.zero_grad()
            if ballast is not None and rank == 0 and step % asked.save_every == asked.save_every - 1:
                torch.save({"model": model.state_dict(), "ballast": ballast}, Path(folder) / "model.pt")
            if asked.evaluate_every and rank == 0 and step % asked.evaluate_every == asked.evaluate_every - 1:
                evaluate(asked, model, data)
    dist.destroy_process_group()


def train(asked: argparse.Namespace, model: Any, data: Tensor) -> None:
    for number in range(asked.accumulate):
        is_last = number == asked.accumulate - 1
        if asked.fsdp and asked.hold:
            model.set_requires_gradient_sync(is_last)
            model.set_reshard_after_backward(is_last)
        with torch.autograd.detect_anomaly() if asked.anomaly == "context" else contextlib.nullcontext():
            model(data).square().mean().backward()


def evaluate(asked: argparse.Namespace, model: Any, data: Tensor) -> None:
    inner = model.module
    inner.eval()
    with torch.no_grad():
        for _ in range(asked.evaluate_batches):
            inner(data).square().mean().item()
    inner.train()


if __name__ == "__main__":
    main()
