"""One rank of the training jobs that benchmarks/accuracy runs: DistributedDataParallel around layers of a megabyte.

Compute and loading are sleeps, so that ranks that share cores do not hold each other up. What is changed between two
runs of an experiment is a flag here, or the rate of the link.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import lostflops

WIDTH = 500
"""Of a layer: a megabyte of parameters."""


@torch.library.custom_op("benchmark::compute", mutates_args=())
def compute(value: Tensor, seconds: float) -> Tensor:
    time.sleep(seconds)
    return value.clone()


class _Computes(torch.autograd.Function):
    @staticmethod
    def forward(context: torch.autograd.function.FunctionCtx, value: Tensor, ahead: float, back: float) -> Tensor:
        context.back = back
        return compute(value, ahead)

    @staticmethod
    def backward(context: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return compute(gradients[0], context.back), None, None


class Model(nn.Module):
    """Computes for as long as it is asked to; rank 1 may be late, or every rank by chance."""

    def __init__(self, asked: argparse.Namespace) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(asked.layers))
        self._ahead, self._back = (1e-3 * whole / asked.layers for whole in (asked.forward_ms, asked.backward_ms))
        self._late = 1e-3 * asked.late_ms if dist.get_rank() == 1 else 0.0
        self._jitter = 1e-3 * asked.jitter_ms
        self._chance = random.Random(dist.get_rank())

    def forward(self, value: Tensor) -> Tensor:
        if late := self._late + self._jitter * self._chance.random():
            time.sleep(late)
        for layer in self.layers:
            value = layer(_Computes.apply(value, self._ahead, self._back))
        return value


class Samples(Dataset[Tensor]):
    """Each takes its time to be loaded."""

    def __init__(self, count: int, seconds: float) -> None:
        self._count, self._seconds = count, seconds

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Tensor:
        if index >= self._count:
            raise IndexError
        time.sleep(self._seconds)
        return torch.ones(WIDTH)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--forward-ms", type=float, default=100, help="what a microbatch computes in the forward pass")
    parser.add_argument("--backward-ms", type=float, default=200)
    parser.add_argument("--load-ms", type=float, default=0, help="what a batch takes to be loaded")
    parser.add_argument("--workers", type=int, default=0, help="of the loader")
    parser.add_argument("--late-ms", type=float, default=0, help="by which rank 1 is late in each forward pass")
    parser.add_argument("--jitter-ms", type=float, default=0, help="by which each rank is late at most, by chance")
    parser.add_argument("--bucket-mb", type=float, default=25)
    parser.add_argument("--accumulate", type=int, default=1, help="microbatches of a step, reduced with the last")
    parser.add_argument("--zero", type=int, default=0, choices=(0, 1))
    parser.add_argument("--compress", action="store_true", help="gradients are reduced in half precision")
    parser.add_argument("--staleness", type=int, help="steps ahead of the slowest; read by stale_job.py")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--run", type=Path, help="record there")
    parser.add_argument("--window", help="steps to record, as FIRST:COUNT")
    parser.add_argument("--times", type=Path, help="where rank 0 writes the seconds of each step")
    return parser.parse_args()


def steps(asked: argparse.Namespace) -> Iterator[None]:
    model = DistributedDataParallel(Model(asked), bucket_cap_mb=asked.bucket_mb, gradient_as_bucket_view=True)
    if asked.compress:
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    if asked.zero:
        optimizer: torch.optim.Optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=1e-6)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    samples = Samples(asked.steps * asked.accumulate, 1e-3 * asked.load_ms)
    for number, batch in enumerate(DataLoader(samples, batch_size=1, num_workers=asked.workers)):
        is_last = (number + 1) % asked.accumulate == 0
        with contextlib.nullcontext() if is_last else model.no_sync():
            model(batch).sum().backward()
        if is_last:
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
            yield


def train(asked: argparse.Namespace, steps: Iterator[None]) -> None:
    seconds = []
    began = time.perf_counter()
    with lostflops.record(asked.run, steps=asked.window) if asked.run else contextlib.nullcontext():
        for _ in steps:
            now = time.perf_counter()
            seconds.append(now - began)
            began = now
    if asked.times and dist.get_rank() == 0:
        asked.times.write_text(json.dumps(seconds))


def main() -> None:
    asked = arguments()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(asked, steps(asked))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
