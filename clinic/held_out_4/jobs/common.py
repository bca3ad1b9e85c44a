"""What all scripts of this folder share: flags, the process group, a stopwatch and a farm of accelerators."""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

_HOG = """
import os, zlib
parent, data = os.getppid(), bytes(range(256)) * 2000
while os.getppid() == parent:
    zlib.compress(data, 9)
"""


def make_parser(about: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(about or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--farm-ms", type=float, default=0, help="of the farm for a sample in a layer, forward")
    parser.add_argument("--farm-slow", default="-1:1", metavar="RANK:TIMES", help="a rank whose farm is slower")
    parser.add_argument("--farm-spread", type=float, default=0, help="share by which the farm's time varies")
    parser.add_argument("--cores", default="", metavar="CORE,...", help="core of each rank")
    parser.add_argument("--hog", type=int, default=-1, metavar="CORE", help="where another process compresses data")
    return parser


def join(asked: argparse.Namespace) -> tuple[int, int]:
    """Join the process group; return the rank and how many there are."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(asked.seed)
    slow, times = asked.farm_slow.split(":")
    Farm.times = float(times) if int(slow) == rank else 1.0
    Farm.spread = asked.farm_spread
    Farm.chance = random.Random(1000 * asked.seed + rank)
    if asked.hog >= 0 and rank == 0:
        hog = subprocess.Popen([sys.executable, "-I", "-S", "-c", _HOG])
        os.sched_setaffinity(hog.pid, {asked.hog})
    if asked.cores:
        os.sched_setaffinity(0, {int(asked.cores.split(",")[rank])})
    return rank, world


class Stopwatch:
    """Notes when steps end; rank 0 writes their times to the file that the environment names."""

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._laps: list[float] = []
        self._last = time.perf_counter()

    def lap(self) -> None:
        now = time.perf_counter()
        self._laps.append(now - self._last)
        self._last = now

    def finish(self) -> None:
        target = os.environ.get("CLINIC_STEP_TIMES")
        if target and dist.get_rank() == 0:
            Path(target).write_text(json.dumps({"seconds": self._laps, "samples": self._samples}), encoding="utf-8")
        dist.destroy_process_group()


@torch.library.custom_op("farm::compute", mutates_args=())
def farm_compute(value: Tensor, seconds: float) -> Tensor:
    time.sleep(seconds)
    return value.clone()


class _FarmCall(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, seconds: float) -> Tensor:
        ctx.seconds = seconds
        return farm_compute(value, seconds)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return farm_compute(gradients[0].contiguous(), 2 * ctx.seconds), None


class Farm(nn.Module):
    """Accelerators in another room: a call takes a time for each sample, and no core of this machine."""

    times, spread, chance = 1.0, 0.0, random.Random(0)

    def __init__(self, ms: float) -> None:
        super().__init__()
        self._ms = ms

    def forward(self, value: Tensor) -> Tensor:
        if not self._ms:
            return value
        varied = 1 + self.spread * self.chance.uniform(-1, 1)
        return _FarmCall.apply(value, 1e-3 * self._ms * len(value) * self.times * varied)


def make_optimizer(name: str, model: nn.Module) -> torch.optim.Optimizer:
    if name == "loop":
        return torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
    if name == "sgd":
        return torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
