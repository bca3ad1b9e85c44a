"""Parts of a training loop: its start, its clock, an accelerator, and what a trainer does besides training."""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

_BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(20_000))\n"


def arguments(about: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--device-ms", type=float, default=0, help="of the accelerator for a sample, forward")
    parser.add_argument("--device-factor", default="none:1", metavar="RANK:FACTOR", help="a slower accelerator")
    parser.add_argument("--jitter", type=float, default=0, help="share by which the accelerator's time varies")
    parser.add_argument("--pin", default="", metavar="CORE,...", help="core of each rank")
    parser.add_argument("--neighbour", type=int, default=-1, metavar="CORE", help="another process computes there")
    return parser


def start(asked: argparse.Namespace) -> int:
    """Join the process group and return the rank."""
    torch.set_num_threads(1)
    torch.manual_seed(asked.seed)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    Remote.prepare(asked, rank)
    if asked.neighbour >= 0 and rank == 0:
        busy = subprocess.Popen([sys.executable, "-I", "-S", "-c", _BUSY])
        os.sched_setaffinity(busy.pid, {asked.neighbour})
    if asked.pin:
        os.sched_setaffinity(0, {int(asked.pin.split(",")[rank])})
    return rank


class Clock:
    """Step times of rank 0, for the file that the environment names."""

    def __init__(self, samples: int) -> None:
        self._samples, self._ends = samples, [time.perf_counter()]

    def step(self) -> None:
        self._ends.append(time.perf_counter())

    def close(self) -> None:
        path = os.environ.get("CLINIC_STEP_TIMES")
        if path and dist.get_rank() == 0:
            seconds = [after - before for before, after in zip(self._ends, self._ends[1:], strict=False)]
            Path(path).write_text(json.dumps({"seconds": seconds, "samples": self._samples}), encoding="utf-8")
        dist.destroy_process_group()


@torch.library.custom_op("remote::run", mutates_args=())
def remote_run(value: Tensor, seconds: float) -> Tensor:
    time.sleep(seconds)
    return value.clone()


class _Remote(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, value: Tensor, seconds: float) -> Tensor:
        ctx.seconds = seconds
        return remote_run(value, seconds)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor, None]:
        return remote_run(gradients[0], 2 * ctx.seconds), None


class Remote(nn.Module):
    """An accelerator on another machine: it takes its time for each sample, and this CPU is free meanwhile."""

    factor, jitter = 1.0, 0.0
    chance = torch.Generator()

    def __init__(self, ms: float) -> None:
        super().__init__()
        self._ms = ms

    @classmethod
    def prepare(cls, asked: argparse.Namespace, rank: int) -> None:
        slow, factor = asked.device_factor.split(":")
        cls.factor = float(factor) if slow == str(rank) else 1.0
        cls.jitter = asked.jitter
        cls.chance.manual_seed(asked.seed * 1000 + rank)

    def forward(self, value: Tensor) -> Tensor:
        if not self._ms:
            return value
        varied = 1 + self.jitter * float(torch.randn(1, generator=self.chance).clamp(-2, 2))
        return _Remote.apply(value, 1e-3 * self._ms * len(value) * self.factor * varied)


def add_habits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--save-every", type=int, default=0, help="steps between checkpoints of rank 0")
    parser.add_argument("--save-mb", type=int, default=0, help="of features that are saved too")
    parser.add_argument("--validate-every", type=int, default=0, help="steps between validations")
    parser.add_argument("--validate-batches", type=int, default=4)
    parser.add_argument("--validate-on", choices=("first", "all"), default="first")
    parser.add_argument("--log-values", type=int, default=0, help="gradients that are logged as JSON")
    parser.add_argument("--log-every", type=int, default=1)
    parser.add_argument("--metrics", type=int, default=0, help="values averaged over ranks after a step")
    parser.add_argument("--metrics-every", type=int, default=1)
    parser.add_argument("--collect-every", type=int, default=0, help="steps between garbage collections")
    parser.add_argument("--catalogue", type=int, default=0, help="objects in memory")
    parser.add_argument("--monitor-pause", type=float, default=-1, help="seconds between reports of a thread")
    parser.add_argument("--near-duplicates", type=int, default=0, help="earlier samples to compare with; 0 is none")


class Habits:
    """What the trainer does after a step."""

    def __init__(self, asked: argparse.Namespace, model: nn.Module, folder: str) -> None:
        self._asked, self._model, self._folder = asked, model, Path(folder)
        self._features = torch.zeros(asked.save_mb, 250_000)
        self._catalogue = [{"id": number, "tags": [str(number)]} for number in range(asked.catalogue)]
        self._samples: list[str] = []
        self._lines: list[str] = []
        self._stopped = threading.Event()
        if asked.monitor_pause >= 0:
            threading.Thread(target=self._monitor, daemon=True).start()

    def after_step(self, number: int, loss: Tensor, inputs: Any) -> None:
        """`inputs` are what the model was called with."""
        asked = self._asked
        if asked.metrics and number % asked.metrics_every == 0:
            self._average(loss)
        if asked.log_values and number % asked.log_every == 0:
            self._log(number, loss)
        if asked.near_duplicates:
            self._compare(number)
        if asked.collect_every and number % asked.collect_every == 0:
            gc.collect()
        if asked.validate_every and number % asked.validate_every == 0:
            self._validate(inputs)
        if asked.save_every and number % asked.save_every == 0 and dist.get_rank() == 0:
            torch.save({"model": self._model.state_dict(), "features": self._features}, self._folder / "last.pt")

    def _average(self, loss: Tensor) -> None:
        for _ in range(self._asked.metrics):
            value = loss.detach().clone()
            dist.all_reduce(value)
            self._lines.append(f"{value.item():.4f}")
        dist.barrier()

    def _log(self, number: int, loss: Tensor) -> None:
        gradients = [parameter.grad for parameter in self._model.parameters() if parameter.grad is not None]
        local = [getattr(gradient, "to_local", lambda own=gradient: own)() for gradient in gradients]
        values = torch.cat([gradient.flatten()[:1024] for gradient in local])[: self._asked.log_values].tolist()
        record = {"step": number, "loss": loss.item(), "gradients": [f"{value:+.6e}" for value in values]}
        line = json.dumps(record, indent=1)
        (self._folder / f"log-{dist.get_rank()}.json").write_text(re.sub(r"\s+", " ", line), encoding="utf-8")

    def _compare(self, number: int) -> None:
        """Find samples that came before in nearly the same words."""
        for place in range(24):
            words = f"{number * 7919 + place * 104729:040d}"
            sum(sum(map(str.__eq__, words, other)) > 38 for other in self._samples)
            self._samples.append(words)
        del self._samples[: -self._asked.near_duplicates]

    def _validate(self, inputs: Any) -> None:
        """Rank 0 alone needs the replica, not the wrapper that communicates."""
        if self._asked.validate_on == "first" and dist.get_rank():
            return
        replica = getattr(self._model, "module", self._model).eval()
        with torch.no_grad():
            for _ in range(self._asked.validate_batches):
                replica(inputs)
        replica.train()

    def _monitor(self) -> None:
        """Count words of a report, again and again."""
        text = " ".join(f"parameter{number % 97}.grad" for number in range(4000))
        while not self._stopped.wait(self._asked.monitor_pause):
            counts: dict[str, int] = {}
            for word in text.split():
                counts[word] = counts.get(word, 0) + 1
            self._lines = [json.dumps(counts)]

    def close(self) -> None:
        self._stopped.set()
