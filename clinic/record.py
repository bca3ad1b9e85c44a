"""A real job is started with torchrun and recorded by `lostflops run`, as a user would."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

JOBS = Path(__file__).with_name("jobs")
SETTLED, DEEP, LAST = 26, 6, 2
"""Steps before those that are profiled, which are timed undisturbed; profiled ones; and those behind them."""
PATIENCE = 120
GRACE = 10
"""Seconds that a job has to end its ranks."""
NICE = -10
"""Where root runs the clinic: what else the machine does should not hold ranks up."""


@dataclass(frozen=True, slots=True)
class Job:
    """A script of `jobs/`, with flags, on so many ranks."""

    script: str
    flags: str = ""
    ranks: int = 2

    @property
    def words(self) -> list[str]:
        return [str(JOBS / self.script), *self.flags.split(), "--steps", str(SETTLED + DEEP + LAST)]


def record(job: Job, folder: Path) -> Path:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(job.ranks)]
    run([*recorder(folder), *(torchrun if job.ranks > 1 else [sys.executable]), *job.words], folder)
    return folder


def recorder(folder: Path) -> list[str]:
    window = f"{SETTLED}:{DEEP}"
    return [sys.executable, "-m", "lostflops", "run", "-o", str(folder), "--steps", window, "--"]


def run(words: list[str], folder: Path) -> None:
    """What the job and the recorder print is kept beside the run."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    log = folder.with_name(f"{folder.name}.log")
    first = ["nice", "-n", str(NICE)] if os.geteuid() == 0 else []
    with log.open("wb") as told:
        job = subprocess.Popen(
            [*first, *words],
            stdout=told,
            stderr=told,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        try:
            code = job.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            _end(job)
            raise
    if code or not (folder / "run.json").exists():
        raise RuntimeError(f"exit code {code}; {log} has what it printed")


def _end(job: subprocess.Popen[bytes]) -> None:
    """All of it, which torchrun does for its ranks when it is asked to."""
    os.killpg(job.pid, signal.SIGTERM)
    try:
        job.wait(GRACE)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
