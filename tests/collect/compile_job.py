"""Compiled ways to train: python compile_job.py OUT NAME...; OUT/NAME gets losses, and what dynamo counted."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.distributed as dist

from tests.collect import zoo
from tests.collect.zoo import batches, loss_of, train

compiled: Callable[..., Any] = torch.compile(backend="aot_eager")


class Net(torch.nn.Module):
    """One of the user's own: dynamo does not trace a bare container of torch's."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = zoo.model()

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return self.inner(value) + 1.0


def model() -> torch.nn.Module:
    return Net()


def wrapped() -> Iterator[float]:
    net = torch.compile(model(), backend="aot_eager")
    yield from train(net, torch.optim.SGD(net.parameters(), 0.1))


def in_place() -> Iterator[float]:
    net = model()
    net.compile(backend="aot_eager")
    yield from train(net, torch.optim.SGD(net.parameters(), 0.1))


def layers() -> Iterator[float]:
    """Each layer by itself, as large models do."""
    net = model()
    for layer in net.inner.children():
        layer.compile(backend="aot_eager")
    yield from train(net, torch.optim.SGD(net.parameters(), 0.1))


def whole_step() -> Iterator[float]:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    @compiled
    def step(batch: Any) -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(net, batch)
        loss.backward()
        optimizer.step()
        return loss

    for batch in batches():
        yield step(batch).item()


def forward_and_backward() -> Iterator[float]:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    @compiled
    def gradients(batch: Any) -> torch.Tensor:
        loss = loss_of(net, batch)
        loss.backward()
        return loss

    for batch in batches():
        optimizer.zero_grad()
        yield gradients(batch).item()
        optimizer.step()


def optimizer_alone() -> Iterator[float]:
    net = model()
    optimizer = torch.optim.Adam(net.parameters())

    @compiled
    def update() -> None:
        optimizer.step()

    for batch in batches():
        optimizer.zero_grad()
        loss = loss_of(net, batch)
        loss.backward()
        update()
        yield loss.item()


def optimizer_method() -> Iterator[float]:
    net = model()
    optimizer = torch.optim.Adam(net.parameters())
    optimizer.step = compiled(optimizer.step)  # type: ignore[method-assign]
    yield from train(net, optimizer)


def data_parallel() -> Iterator[float]:
    store = Path(sys.argv[1]) / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    net = torch.compile(torch.nn.parallel.DistributedDataParallel(model()), backend="aot_eager")
    yield from train(net, torch.optim.SGD(net.parameters(), 0.1))
    dist.destroy_process_group()


WAYS = {
    way.__name__: way
    for way in (
        wrapped, in_place, layers, whole_step, forward_and_backward, optimizer_alone, optimizer_method, data_parallel,
    )
}  # fmt: skip


def main(out: Path, names: list[str]) -> int:
    worst = 0
    for name in names:
        child = os.fork()
        if child == 0:
            losses = [loss.hex() for loss in WAYS[name]()]
            counted = {kind: dict(found) for kind, found in torch._dynamo.utils.counters.items() if found}
            (out / name).write_text(json.dumps({"losses": losses, "counted": counted}))
            sys.exit(0)
        worst = max(worst, os.waitpid(child, 0)[1])
    return worst


if __name__ == "__main__":
    sys.exit(1 if main(Path(sys.argv[1]), sys.argv[2:] or list(WAYS)) else 0)
