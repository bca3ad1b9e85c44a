"""Ways to train, each in a process of its own: python zoo.py OUT NAME...

Every loss goes to OUT/NAME.RANK as `float.hex`, so that two runs can be compared bit by bit. Ranks are forked, so that
torch, and what the first optimizer imports of it, is imported once for all of them.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

STEPS = 50
PAUSE = float(os.environ.get("ZOO_PAUSE", "0"))
"""Seconds that each step waits, for those who want to meet it."""


def model() -> torch.nn.Module:
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.2), torch.nn.ReLU(), torch.nn.Linear(16, 1))


def batches(steps: int = STEPS, **loader: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Shuffled, so that the random numbers of loaders count too."""
    made = torch.Generator().manual_seed(3)
    data = TensorDataset(torch.randn(64, 8, generator=made), torch.randn(64, 1, generator=made))
    loading = DataLoader(data, batch_size=8, shuffle=True, **loader)
    given = 0
    while given < steps:
        for batch in loading:
            time.sleep(PAUSE)
            yield tuple(batch)
            given += 1
            if given == steps:
                return


def loss_of(net: Any, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return torch.nn.functional.mse_loss(net(batch[0]), batch[1])


def train(net: Any, optimizer: Any, **loader: Any) -> Iterator[float]:
    for batch in batches(**loader):
        optimizer.zero_grad()
        loss = loss_of(net, batch)
        loss.backward()
        optimizer.step()
        yield loss.item()


def plain() -> Iterator[float]:
    net = model()
    yield from train(net, torch.optim.AdamW(net.parameters(), foreach=False))


def workers() -> Iterator[float]:
    net = model()
    yield from train(net, torch.optim.SGD(net.parameters(), 0.1), num_workers=2)


def persistent() -> Iterator[float]:
    net = model()
    yield from train(net, torch.optim.SGD(net.parameters(), 0.1), num_workers=2, persistent_workers=True)


def spawned_workers() -> Iterator[float]:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    yield from train(net, optimizer, num_workers=1, persistent_workers=True, multiprocessing_context="spawn")


def scaled() -> Iterator[float]:
    """Every seventh step has no finite gradients and is skipped."""
    net = model()
    optimizer, scaler = torch.optim.SGD(net.parameters(), 0.1), torch.amp.GradScaler("cpu", init_scale=8.0)
    for number, batch in enumerate(batches()):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(net, batch)
        scaler.scale(loss * (float("inf") if number % 7 == 3 else 1.0)).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        yield loss.item()


def accumulated() -> Iterator[float]:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for number, batch in enumerate(batches(4 * STEPS)):
        loss = loss_of(net, batch)
        loss.backward()
        if number % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
        yield loss.item()


def two_optimizers() -> Iterator[float]:
    first, second = model(), model()
    ours, theirs = torch.optim.SGD(first.parameters(), 0.1), torch.optim.Adam(second.parameters())
    for batch in batches():
        for net, optimizer in ((first, ours), (second, theirs)):
            optimizer.zero_grad()
            loss = loss_of(net, batch)
            loss.backward()
            optimizer.step()
            yield loss.item()


def closure() -> Iterator[float]:
    net = model()
    optimizer = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=4)
    for batch in batches():

        def evaluate(batch: Any = batch) -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(net, batch)
            loss.backward()
            return loss

        yield float(optimizer.step(evaluate))


def in_backward() -> Iterator[float]:
    net = model()
    optimizers = {parameter: torch.optim.SGD([parameter], 0.1) for parameter in net.parameters()}

    def update(parameter: torch.Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    for batch in batches():
        loss = loss_of(net, batch)
        loss.backward()
        yield loss.item()


def evaluated() -> Iterator[float]:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    for number, batch in enumerate(batches()):
        loss = loss_of(net, batch)
        loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=False)
        yield loss.item()
        if number % 10 == 9:
            net.eval()
            with torch.no_grad():
                yield loss_of(net, batch).item()
            net.train()


def checkpointed() -> Iterator[float]:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def wrapped(value: torch.Tensor) -> Any:
        return torch.utils.checkpoint.checkpoint(net, value.requires_grad_(), use_reentrant=True)

    for batch in batches():
        optimizer.zero_grad()
        loss = loss_of(wrapped, batch)
        loss.backward()
        optimizer.step()
        yield loss.item()


def forking() -> Iterator[float]:
    """The program forks in the middle, and the child trains on its own."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for number, loss in enumerate(train(net, optimizer)):
        if number == 20:
            child = os.fork()
            if child == 0:
                for _ in train(model(), optimizer):
                    pass
                os._exit(0)
            os.waitpid(child, 0)
        yield loss


class Learning(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """A dataset that trains by itself, in whatever process it is in."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, place: int) -> tuple[torch.Tensor, torch.Tensor]:
        net = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        net(torch.full((1, 2), float(place))).sum().backward()
        optimizer.step()
        return torch.full((8,), float(place)) / 64, net.weight.detach().sum(1)


def learning_workers() -> Iterator[float]:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    torch.manual_seed(11)
    for _ in range(6):
        for batch in DataLoader(Learning(), batch_size=8, num_workers=2):
            optimizer.zero_grad()
            loss = loss_of(net, batch)
            loss.backward()
            optimizer.step()
            yield loss.item()


def ddp() -> Iterator[float]:
    net = DistributedDataParallel(model())
    yield from train(net, torch.optim.AdamW(net.parameters()))


def zero() -> Iterator[float]:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    net = DistributedDataParallel(model())
    yield from train(net, ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=0.01))


def fully_sharded() -> Iterator[float]:
    from torch.distributed.fsdp import fully_shard

    net = model()
    torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
    fully_shard(net)
    yield from train(net, torch.optim.AdamW(net.parameters()))


RANKS = {ddp: 2, zero: 2, fully_sharded: 2}
ALONE: tuple[Callable[[], Iterator[float]], ...] = (
    plain, workers, persistent, spawned_workers, scaled, accumulated, two_optimizers, closure, in_backward, evaluated,
    checkpointed, forking, learning_workers,
)  # fmt: skip
WAYS = {way.__name__: way for way in (*ALONE, *RANKS)}


def run_rank(out: Path, name: str, rank: int, size: int) -> None:
    if size > 1:
        dist.init_process_group("gloo", init_method=f"file://{out}/{name}.store", rank=rank, world_size=size)
    lines = [loss.hex() for loss in WAYS[name]()]
    (out / f"{name}.{rank}").write_text("\n".join(lines))
    if size > 1:
        dist.destroy_process_group()


def fork_rank(out: Path, name: str, rank: int, size: int) -> int:
    """The number of a child that runs it and ends as a program does."""
    child = os.fork()
    if child == 0:
        os.environ["LOSTFLOPS_ZOO"] = name
        run_rank(out, name, rank, size)
        sys.exit(0)
    return child


def main(out: Path, names: list[str]) -> int:
    worst = 0
    for name in names:
        size = RANKS.get(WAYS[name], 1)
        for child in [fork_rank(out, name, rank, size) for rank in range(size)]:
            worst = max(worst, os.waitpid(child, 0)[1])
    return worst


if __name__ == "__main__":
    sys.exit(1 if main(Path(sys.argv[1]), sys.argv[2:] or list(WAYS)) else 0)
