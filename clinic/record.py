"""Start a real job with torchrun: recorded by `lostflops run` with its defaults, as a user would, or by itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import mean, median

JOBS = Path(__file__).with_name("jobs")
STEPS = 64
"""Steps of a recorded job: enough for the windows that `lostflops run` chooses by itself."""
PLAIN_STEPS = 24
"""Steps of a job that is only timed."""
WARM_UP, BLOCK = 4, 10
"""Steps that a timing leaves out, and those that it averages: a block contains what happens every 2, 5 or 10 steps."""
STEP_TIMES = "CLINIC_STEP_TIMES"
"""The environment variable with the file to which rank 0 of a job writes its step times."""
PATIENCE = 900
"""Seconds that a job has, also on a busy machine."""
GRACE = 10
"""Seconds that a job has to end its ranks."""


@dataclass(frozen=True, slots=True)
class Job:
    """A script of `jobs/`, with flags, on so many ranks; `plain_steps` are the steps of a run that is only timed."""

    script: str
    flags: str = ""
    ranks: int = 2
    steps: int = STEPS
    plain_steps: int = PLAIN_STEPS

    @property
    def words(self) -> list[str]:
        return [str(JOBS / self.script), *self.flags.split(), "--steps", str(self.steps)]

    @property
    def command(self) -> list[str]:
        """Return what a user types to start the job."""
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(self.ranks)]
        return [sys.executable, *(torchrun if self.ranks > 1 else ()), *self.words]

    @property
    def plain(self) -> Job:
        return replace(self, steps=self.plain_steps)

    def with_flags(self, flags: str) -> Job:
        """Append flags; the last one of a kind is used."""
        return replace(self, flags=f"{self.flags} {flags}".strip())


def record(job: Job, folder: Path) -> Path:
    folder.parent.mkdir(parents=True, exist_ok=True)
    log = folder.with_name(f"{folder.name}.log")
    code = run([*recorder(folder), *job.command], log)
    if code or not (folder / "run.json").exists():
        raise RuntimeError(f"exit code {code}; {log} has what it printed")
    return folder


def recorder(folder: Path) -> list[str]:
    return [sys.executable, "-m", "lostflops", "run", "-o", str(folder), "--"]


def time_job(job: Job, *, per_sample: bool = False) -> float:
    """Run the job without a recorder and return its usual step time, in seconds."""
    with tempfile.TemporaryDirectory(prefix="clinic-") as folder:
        times, log = Path(folder) / "times.json", Path(folder) / "log"
        asked = {"words": job.plain.words, "ranks": job.ranks, "times": str(times), "log": str(log)}
        starter = _starter()
        assert starter.stdin is not None
        assert starter.stdout is not None
        starter.stdin.write(f"{json.dumps(asked)}\n")
        starter.stdin.flush()
        code = int(starter.stdout.readline())
        if code:
            raise RuntimeError(f"exit code {code}: {' '.join(log.read_text(errors='replace').split())[-300:]}")
        if not times.exists():
            raise RuntimeError(f"{job.script} wrote no step times and has no optimizer that steps")
        return read_step_time(times, per_sample=per_sample)


@cache
def _starter() -> subprocess.Popen[str]:
    """Return the process that starts jobs which are timed. It ends when its standard input is closed, as this process
    ends."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "clinic.starter"]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True)


def read_step_time(times: Path, *, per_sample: bool = False) -> float:
    """Return the median over blocks of steps of their mean, in seconds for a step or for a sample.

    The mean of a block contains what happens in some steps only; the median leaves out a block that was disturbed.
    """
    told = json.loads(times.read_text(encoding="utf-8"))
    return usual(told["seconds"]) / (told["samples"] if per_sample else 1)


def usual(seconds: Sequence[float]) -> float:
    settled = seconds[WARM_UP:]
    blocks = [settled[start : start + BLOCK] for start in range(0, len(settled) - BLOCK + 1, BLOCK)]
    return median(mean(block) for block in blocks or [settled])


def run(words: Sequence[str], log: Path, more: Mapping[str, str] | None = None) -> int:
    """Return the exit code; the log keeps what the job and the recorder print."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **(more or {})}
    with log.open("wb") as told:
        job = subprocess.Popen(words, stdout=told, stderr=told, env=environment, start_new_session=True)
        try:
            return job.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            _end(job)
            raise


def _end(job: subprocess.Popen[bytes]) -> None:
    """End all of it, which torchrun does for its ranks when it is asked to."""
    os.killpg(job.pid, signal.SIGTERM)
    try:
        job.wait(GRACE)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
