"""One rank of the jobs that benchmarks/replay_gloo.py records: small models over gloo, one kind of parallelism each.

Part of what computes is a sleep in an operation of its own, so that ranks that share cores still differ little.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from itertools import repeat

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

WIDTH, LAYERS, BATCH = 512, 6, 16
STRAGGLER = 0.040
"""Seconds that the last rank sleeps more in a step."""
LOADING, SLOW_LOADING = 0.050, 0.300
"""Seconds that a loader's worker takes for a batch."""

Step = Callable[[Tensor], None]


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
        return sleep(gradients[0], 0.008)


class Block(nn.Module):
    def __init__(self, width: int = WIDTH, sleeps: bool = True) -> None:
        super().__init__()
        self.up, self.down, self._sleeps = nn.Linear(width, width), nn.Linear(width, width), sleeps

    def forward(self, value: Tensor) -> Tensor:
        value = self.down(torch.relu(self.up(value)))
        return sleep_both(value) if self._sleeps else value


def sleep_both(value: Tensor) -> Tensor:
    with torch.no_grad():
        sleep(value, 0.004)
    return _SleepsBack.apply(value)


def model(width: int = WIDTH, sleeps: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Block(width, sleeps) for _ in range(LAYERS)))


def trained(made: nn.Module, optimizer: torch.optim.Optimizer, before: Callable[[], None] = lambda: None) -> Step:
    def step(batch: Tensor) -> None:
        optimizer.zero_grad()
        before()
        made(batch).sum().backward()
        optimizer.step()

    return step


def ddp(width: int = WIDTH, sleeps: bool = True, before: Callable[[], None] = lambda: None, cap: float = 2) -> Step:
    made = nn.parallel.DistributedDataParallel(model(width, sleeps), bucket_cap_mb=cap)
    return trained(made, torch.optim.SGD(made.parameters(), lr=1e-3), before)


def straggler() -> Step:
    return ddp(before=lambda: time.sleep(STRAGGLER * (dist.get_rank() == dist.get_world_size() - 1)))


def fsdp2() -> Step:
    made, mesh = model(), init_device_mesh("cpu", (dist.get_world_size(),))
    for block in made:
        fully_shard(block, mesh=mesh)
    fully_shard(made, mesh=mesh)
    return trained(made, torch.optim.SGD(made.parameters(), lr=1e-3))


def zero() -> Step:
    made = nn.parallel.DistributedDataParallel(model(), bucket_cap_mb=2)
    return trained(made, ZeroRedundancyOptimizer(made.parameters(), torch.optim.AdamW, lr=1e-3))


def tensor() -> Step:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    made = parallelize_module(model(), mesh, {"*.up": ColwiseParallel(), "*.down": RowwiseParallel()})
    return trained(made, torch.optim.SGD(made.parameters(), lr=1e-3, foreach=False))


def pipeline() -> Step:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    whole = model()
    own = nn.Sequential(*whole[rank * LAYERS // ranks : (rank + 1) * LAYERS // ranks])
    stage = PipelineStage(own, rank, ranks, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=lambda out, target: (out - target).sum())
    optimizer = torch.optim.SGD(own.parameters(), lr=1e-3)

    def step(batch: Tensor) -> None:
        optimizer.zero_grad()
        schedule.step(batch) if rank == 0 else schedule.step(target=batch)
        optimizer.step()

    return step


def manual() -> Step:
    """Gradients are reduced by hand when the backward pass is over."""
    made = model()
    optimizer = torch.optim.SGD(made.parameters(), lr=1e-3)

    def step(batch: Tensor) -> None:
        optimizer.zero_grad()
        made(batch).sum().backward()
        for parameter in made.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()

    return step


class Slow(torch.utils.data.Dataset):
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, _: int) -> Tensor:
        time.sleep(self._seconds / BATCH)
        return torch.ones(WIDTH)


def loader(workers: int, seconds: float) -> Iterator[Tensor]:
    return iter(torch.utils.data.DataLoader(Slow(seconds), BATCH, num_workers=workers))


def light() -> Step:
    """Computes less than a batch takes to load with two workers."""
    return ddp(128, sleeps=False)


JOBS: dict[str, tuple[Callable[[], Step], int | None]] = {
    "ddp": (ddp, None),
    "ddp_network": (lambda: ddp(1024, sleeps=False, cap=8), None),
    "ddp_compute": (lambda: ddp(64), None),
    "straggler": (straggler, None),
    "loader_0": (ddp, 0),
    "loader_2": (light, 2),
    "loader_2_hidden": (ddp, 2),
    "fsdp2": (fsdp2, None),
    "zero": (zero, None),
    "tensor": (tensor, None),
    "pipeline": (pipeline, None),
    "manual": (manual, None),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("--steps", type=int, default=16)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    make, workers = JOBS[asked.job]
    slow = asked.job == "loader_2"
    step = make()
    width = 1024 if asked.job == "ddp_network" else 64 if asked.job == "ddp_compute" else WIDTH
    batches = (
        repeat(torch.ones(BATCH, width)) if workers is None else loader(workers, SLOW_LOADING if slow else LOADING)
    )
    for _, batch in zip(range(asked.steps), batches, strict=False):
        step(batch[:, :128] if slow else batch)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
