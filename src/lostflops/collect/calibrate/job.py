"""Ranks that calibrate together. They coordinate over the CPU, separately from what is measured."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist

from lostflops.core.errors import UsageError

_LEAST_TIMEOUT: Final = 60
_SLURM: Final = {"RANK": "SLURM_PROCID", "WORLD_SIZE": "SLURM_STEP_NUM_TASKS", "LOCAL_RANK": "SLURM_LOCALID"}
_OPEN_MPI: Final = {
    "RANK": "OMPI_COMM_WORLD_RANK",
    "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
    "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
}


@dataclass(frozen=True, slots=True)
class CalibrationJob:
    rank: int
    world: int
    device: Any
    backend: str | None
    control: Any

    def synchronize(self) -> None:
        if self.device.type != "cpu":
            torch.accelerator.synchronize()

    def barrier(self) -> None:
        if self.control is not None:
            dist.barrier(group=self.control)

    def gather(self, numbers: Sequence[int]) -> list[list[int]]:
        """Return the numbers of all ranks, by rank; all ranks give equally many."""
        if self.control is None:
            return [list(numbers)]
        mine = torch.tensor(numbers, dtype=torch.int64)
        everyone = [torch.empty_like(mine) for _ in range(self.world)]
        dist.all_gather(everyone, mine, group=self.control)
        return [list(map(int, row.tolist())) for row in everyone]

    def broadcast_numbers(self, numbers: Sequence[int]) -> list[int]:
        """Return the numbers of rank 0, on all ranks."""
        said = torch.tensor(numbers, dtype=torch.int64)
        if self.control is not None:
            dist.broadcast(said, src=0, group=self.control)
        return list(map(int, said.tolist()))

    def gather_objects(self, mine: Any) -> list[Any]:
        if self.control is None:
            return [mine]
        everyone: list[Any] = [None] * self.world
        dist.all_gather_object(everyone, mine, group=self.control)
        return everyone


def join(environment: Mapping[str, str], kind: str | None, seconds: float, store: Any = None) -> CalibrationJob:
    """Take part in the job that a launcher started, or run alone; with a `store`, wait no longer than `seconds`."""
    found = read_launcher(environment)
    world, local = int(found.get("WORLD_SIZE", "1")), int(found.get("LOCAL_RANK", "0"))
    device = choose_device(kind, local)
    if world == 1:
        return CalibrationJob(0, 1, device, None, None)
    os.environ.update(found)
    timeout = timedelta(seconds=max(_LEAST_TIMEOUT, seconds) if store is None else seconds)
    backend = "gloo" if device.type == "cpu" else dist.get_default_backend_for_device(device)
    if store is None:
        dist.init_process_group(backend, timeout=timeout)
    else:
        rank = int(found["RANK"])
        dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=timeout)
    control = dist.new_group(backend="gloo", timeout=timeout)
    return CalibrationJob(dist.get_rank(), world, device, backend, control)


def read_launcher(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what `torch.distributed` needs to know, from torchrun, Slurm or Open MPI; empty if there is no launcher.

    >>> slurm = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "7"}
    >>> read_launcher(slurm | {"SLURM_STEP_NODELIST": "gpu[07-08]"})["MASTER_ADDR"]
    'gpu07'
    """
    own = {name: environment[name] for name in _SLURM if name in environment}
    if "RANK" in own and "WORLD_SIZE" in own:
        return own
    for names in (_SLURM, _OPEN_MPI):
        if all(name in environment for name in names.values()):
            return {ours: environment[theirs] for ours, theirs in names.items()} | _master(environment)
    return {}


def _master(environment: Mapping[str, str]) -> dict[str, str]:
    port = environment.get("MASTER_PORT", str(29500 + int(environment.get("SLURM_JOB_ID", "0")) % 1000))
    nodes = environment.get("SLURM_STEP_NODELIST", "")
    address = environment.get("MASTER_ADDR") or re.sub(r"\[(\w+).*", r"\1", nodes.split(",", maxsplit=1)[0])
    if not address:
        raise UsageError("MASTER_ADDR is not set: set it to the address of rank 0's host, or launch with torchrun.")
    return {"MASTER_ADDR": address, "MASTER_PORT": port}


def choose_device(kind: str | None, local: int) -> Any:
    if kind == "cpu":
        return torch.device("cpu")
    if not hasattr(torch, "accelerator"):
        raise UsageError(f"torch {torch.__version__} is too old to measure devices: use 2.6 or newer, or --device cpu.")
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if kind is None and found is None:
        return torch.device("cpu")
    if found is None or kind not in (None, found.type):
        here = found.type if found is not None else "no accelerator"
        raise UsageError(f"--device {kind} is not available: PyTorch finds {here} here.")
    count = torch.accelerator.device_count()
    if local >= count:
        raise UsageError(f"local rank {local} has no device: start at most {count} ranks on this host, one per device.")
    torch.accelerator.set_device_index(local)
    return torch.device(found.type, local)
