"""One rank of the jobs that benchmarks/scale.py runs: compute is a sleep, so that cores shared by ranks do not matter.

blocking    all-reduces of several sizes one after the other, once the sleep is over
ddp         DistributedDataParallel around a module that sleeps in its forward pass
overlapped  the same with sleeps in the backward pass, as operations of their own: buckets are reduced meanwhile
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

import lostflops

SLEEP = 0.250
SIZES = (65_536, 500_000, 1_000_000, 2_500_000)
"""Bytes of what is reduced in a step."""
LAYERS = 4
WIDTH = 500
"""Of a layer: a megabyte of parameters."""


@torch.library.custom_op("benchmark::sleep", mutates_args=())
def sleep(value: Tensor, seconds: float) -> Tensor:
    time.sleep(seconds)
    return value.clone()


class _SleepsBack(torch.autograd.Function):
    @staticmethod
    def forward(_: object, value: Tensor) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(_: object, *gradients: Tensor) -> Tensor:
        return sleep(gradients[0], SLEEP / LAYERS)


class Sleeping(nn.Module):
    """Layers that do next to nothing, for as long as a step computes."""

    def __init__(self, backward: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self._backward = backward

    def forward(self, value: Tensor) -> Tensor:
        for layer in self.layers:
            if not self._backward:
                time.sleep(SLEEP / LAYERS)
            value = layer(_SleepsBack.apply(value) if self._backward else value)
        return value


def blocking() -> Callable[[], None]:
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    buffers = [torch.zeros(size // 4) for size in SIZES]

    def step() -> None:
        optimizer.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
        time.sleep(SLEEP)
        for buffer in buffers:
            dist.all_reduce(buffer)
        optimizer.step()

    return step


def distributed(backward: bool) -> Callable[[], None]:
    model = nn.parallel.DistributedDataParallel(Sleeping(backward), bucket_cap_mb=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        model(torch.ones(1, WIDTH)).sum().backward()
        optimizer.step()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=("blocking", "ddp", "overlapped"))
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--run", type=Path, help="record there")
    parser.add_argument("--window", help="steps to record, as FIRST:COUNT")
    parser.add_argument("--times", type=Path, help="where rank 0 writes the seconds of each step")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    step = blocking() if asked.job == "blocking" else distributed(asked.job == "overlapped")
    seconds = []
    with lostflops.record(asked.run, steps=asked.window) if asked.run else contextlib.nullcontext():
        for _ in range(asked.steps):
            began = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - began)
    if asked.times and dist.get_rank() == 0:
        asked.times.write_text(json.dumps(seconds))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
