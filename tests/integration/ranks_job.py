"""A small MLP under DDP and torch.profiler, with one rank that is slow in its backward pass only.

    INIT=file:///tmp/store RANK=0 WORLD_SIZE=4 python tests/integration/ranks_job.py FOLDER JOB...

Every rank leaves its trace in FOLDER/<job>/traces, its Flight Recorder dump in FOLDER/<job>/flight, and what it
measured in FOLDER/<job>/measured<rank>.json. Most of a step is sleep, so that four ranks do not compete for two cores.
Torch is imported inside functions, so that the numbers below can be read without it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch
    from torch import nn

RANKS = 4
SLOW = 2
DELAY = 0.030
"""Seconds by which the slow rank's backward pass is longer."""
FORWARD, BACKWARD, OPTIMIZER = 0.020, 0.020, 0.010
"""Seconds that every rank sleeps in each phase."""
TURN = 0.003
"""Seconds by which each rank in turn is late, so that none is the last by habit of the machine."""
LAYERS, BATCH = 8, 16
WARM_UP, STEPS = 3, 8
BUCKETS, LATE_BUCKETS = 3, 2
"""Collectives of a step, and how many of them follow the delay."""


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def multiply(seconds: float) -> None:
    import torch

    matrix = torch.ones(256, 256)
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        torch.mm(matrix, matrix)


class Job(NamedTuple):
    """`delay` is what the slow rank does beside what all do; `mbit` limits what a host sends to the other."""

    delay: Callable[[float], None] | None = None
    width: int = 64
    mbit: int | None = None


JOBS = {
    "healthy": Job(),
    "backward_sleep": Job(sleep),
    "backward_matmul": Job(multiply),
    "narrow": Job(width=256, mbit=100),
}


def mlp(width: int, in_backward: Callable[[], None]) -> nn.Module:
    """Equal layers; `in_backward` is called with the gradient of what the middle one puts out."""
    from torch import nn

    class Middle(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x.register_hook(lambda _: in_backward())
            return x

    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*layers[:LAYERS], Middle(), *layers[LAYERS:])


def train(job: Job, folder: Path, rank: int) -> list[dict[str, int]]:
    """The profiled steps, in ns of wall time by phase, and when the delay was over."""
    import torch
    from torch.nn.parallel import DistributedDataParallel
    from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler

    def in_backward() -> None:
        time.sleep(BACKWARD + TURN * (len(measured) % RANKS == rank))
        if job.delay and rank == SLOW:
            job.delay(DELAY)
        arrivals.append(time.time_ns())

    torch.manual_seed(0)
    bucket_cap_mb = 2 * job.width * job.width * 4 / 1e6
    model = DistributedDataParallel(mlp(job.width, in_backward), bucket_cap_mb=bucket_cap_mb)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.ones(BATCH, job.width)
    measured: list[dict[str, int]] = []
    arrivals: list[int] = []
    with profile(
        activities=[ProfilerActivity.CPU],
        record_shapes=True,
        schedule=schedule(wait=0, warmup=WARM_UP, active=STEPS, repeat=1),
        on_trace_ready=tensorboard_trace_handler(str(folder)),
    ) as profiler:
        for _ in range(WARM_UP + STEPS):
            began = time.perf_counter_ns()
            time.sleep(FORWARD)
            loss = model(batch).sum()
            forward = time.perf_counter_ns()
            loss.backward()
            backward = time.perf_counter_ns()
            time.sleep(OPTIMIZER)
            optimizer.step()
            optimizer.zero_grad()
            done = time.perf_counter_ns()
            phases = {"forward": forward - began, "backward": backward - forward, "optimizer": done - backward}
            measured.append(phases | {"arrived": arrivals[-1]})
            profiler.step()
    return measured[WARM_UP:]


def limit(mbit: int) -> None:
    """What leaves this host; one of its ranks calls it."""
    queue = ["tbf", "rate", f"{mbit}mbit", "burst", "64kb", "latency", "200ms"]
    subprocess.run(["tc", "qdisc", "add", "dev", os.environ["GLOO_SOCKET_IFNAME"], "root", *queue], check=True)


def main(folder: Path, names: list[str]) -> None:
    rank = int(os.environ["RANK"])
    if "HOST" in os.environ:
        socket.sethostname(os.environ["HOST"])
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo", init_method=os.environ["INIT"], rank=rank, world_size=RANKS, timeout=timedelta(seconds=60)
        )
    except RuntimeError as error:
        (folder / f"unconnected{rank}").write_text(str(error))
        raise
    for name in names:
        for kind in ("traces", "flight"):
            (folder / name / kind).mkdir(parents=True, exist_ok=True)
        if JOBS[name].mbit and rank % 2 == 0:
            limit(JOBS[name].mbit)
        dist.barrier()
        measured = train(JOBS[name], folder / name / "traces", rank)
        (folder / name / f"measured{rank}.json").write_text(json.dumps(measured))
        (folder / name / "flight" / f"rank{rank}_fr.pkl").write_bytes(torch._C._distributed_c10d._dump_fr_trace())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
