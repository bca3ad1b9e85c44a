"""Small training programs as people write them, each with one thing that happens to its job: python whole_jobs.py NAME.

They are programs of their users, so nothing here knows Lostflops.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def make_model(width: int = 256) -> nn.Module:
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))


def train(model: nn.Module, steps: int, batch: int = 64) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        train_step(model, optimizer, torch.randn(batch, 64))


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: torch.Tensor) -> None:
    loss = model(inputs).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def fail_at(step: int, rank: int, how: str) -> None:
    """Train with DDP; one rank fails in this step."""
    dist.init_process_group("gloo")
    model = DistributedDataParallel(make_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number in range(200):
        if number == step and dist.get_rank() == rank:
            check_batch(how)
        train_step(model, optimizer, torch.randn(64, 64))
    dist.destroy_process_group()


def check_batch(how: str) -> None:
    if how == "raise":
        raise ValueError("a label is out of range")
    if how == "exit":
        sys.exit(3)
    time.sleep(0.2)  # what was recorded is on the disk by then
    os.kill(os.getpid(), getattr(signal, how))


def plain() -> None:
    train(make_model(1024), 200, batch=2048)


def five_steps() -> None:
    train(make_model(1024), 5, batch=2048)


def compiled() -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    fast = torch.compile(model)
    for number in range(100):
        train_step(fast, optimizer, torch.randn(32 if number < 30 else 48, 64))


def slow_start() -> None:
    time.sleep(4)
    train(make_model(), 100)


def crash() -> None:
    fail_at(40, 1, "raise")


def abort() -> None:
    fail_at(40, 1, "SIGABRT")


def leave() -> None:
    fail_at(40, 1, "exit")


def crash_alone() -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number in range(200):
        if number == 40:
            check_batch("raise")
        train_step(model, optimizer, torch.randn(64, 64))


def crash_before() -> None:
    make_model()
    check_batch("raise")


def terminated() -> None:
    """It sends itself what a scheduler sends at the end of the job's time."""
    model = make_model()
    train(model, 40)
    check_batch("SIGTERM")


def out_of_memory() -> None:
    model = make_model()
    train(model, 40)
    bytearray(10**15)


def two_models() -> None:
    """First a small model, then a large one, each with an optimizer of its own."""
    train(make_model(64), 60, batch=16)
    train(make_model(2048), 60, batch=2048)


def two_optimizers() -> None:
    """A policy and a value network in turn; steps of the value network take far longer, as they should."""
    policy, value = make_model(64), make_model(2048)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in (policy, value)]
    for _ in range(60):
        train_step(policy, optimizers[0], torch.randn(64, 64))
        train_step(value, optimizers[1], torch.randn(1024, 64))


def spawned(rank: int, how: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": os.environ["SPAWN_PORT"]}
    dist.init_process_group("gloo", rank=rank, world_size=2)
    model = DistributedDataParallel(make_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number in range(120):
        if how and number == 40 and rank == 1:
            check_batch(how)
        train_step(model, optimizer, torch.randn(64, 64))
    dist.destroy_process_group()


def spawn(how: str = "") -> None:
    mp.spawn(spawned, args=(how,), nprocs=2)


def spawn_crash() -> None:
    spawn("raise")


def spawn_killed() -> None:
    spawn("SIGKILL")


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    globals()[sys.argv[1]]()
