"""Peaks and step times at batch sizes that were not fitted, against what was then measured there.

    python -m benchmarks.batch_sizes --keep FOLDER && python -m benchmarks.batch_sizes.render

Each job is recorded at three sizes, which are fitted, and at others inside and beyond them, which are predicted first
and measured then.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from lostflops.account.memory.read import memories
from lostflops.cli.fit_runs import FitJob, measure_batch, read_batch
from lostflops.predict.fit.batches import FitResult, MeasuredBatch, fit_batches
from lostflops.predict.fit.room import beside
from lostflops.predict.whatif.change import Facts
from lostflops.predict.whatif.changes.batch import CHANGE
from lostflops.store.run import Run

RESULTS = Path(__file__).with_name("results") / "predicted.json"
JOB = Path(__file__).with_name("job.py")


@dataclass(frozen=True)
class Trial:
    model: str
    optimizer: str
    sizes: tuple[int, ...]
    others: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{self.model}-{self.optimizer}"


TRIALS = (
    Trial("mlp", "adamw", (128, 256, 512), (64, 384, 2048)),
    Trial("cnn", "sgd", (8, 16, 32), (4, 24, 64)),
    Trial("transformer", "adamw", (4, 8, 16), (2, 12, 48)),
)


def _run(trial: Trial, size: int, asked: argparse.Namespace) -> MeasuredBatch:
    """What is kept from before is not run again."""
    folder = asked.keep / trial.name / f"batch-{size}"
    if folder.exists():
        with Run.open(folder) as run:
            return read_batch(size, run)
    words = [*shlex.split(asked.under), sys.executable, str(JOB), "--model", trial.model]
    words += ["--optimizer", trial.optimizer, "--batch-size", str(size), "--steps", str(asked.steps)]
    found = measure_batch(size, FitJob(words, dict(os.environ), folder, None))
    if isinstance(found, str):
        raise SystemExit(f"{trial.name} at {size} {found}")
    return found


def _scored(fit: FitResult, truth: MeasuredBatch, middle: Path) -> dict[str, Any]:
    """`middle` is the run of the middle size, from which `batch=FACTOR` starts."""
    assert fit.peaks is not None
    height = fit.peaks.at(truth.batch)
    held = next(one.peak_bytes for one in truth.memories if one.device == fit.memories[0].device)
    line = _one_line(fit, truth.batch)
    row: dict[str, Any] = {
        "batch": truth.batch,
        "is_beyond": not fit.runs[0].batch <= truth.batch <= fit.runs[-1].batch,
        "predicted": height.bytes,
        "low": height.low,
        "high": height.high,
        "measured": held,
        "off": height.bytes / held - 1,
        "resident": {"predicted": _resident(fit, height.bytes), "measured": truth.process},
        "off_one_line": line / held - 1,
        "off_change": _changed(middle, truth.batch / fit.runs[1].batch) / held - 1,
    }
    if fit.times is not None and truth.time is not None and fit.times.is_told(truth.batch):
        span = fit.times.step_ns(truth.batch)
        row["step"] = {"predicted": span.value, "low": span.low, "high": span.high, "measured": truth.time.ns}
        row["step"]["off"] = span.value / truth.time.ns - 1
    return row


def _one_line(fit: FitResult, batch: int) -> float:
    """What one line through the measured peaks says."""
    assert fit.peaks is not None
    slope, fixed = np.polyfit(fit.peaks.sizes, fit.peaks.measured, 1)
    return float(fixed + slope * batch)


def _resident(fit: FitResult, peak: int) -> int | None:
    """What the process would hold at this peak of its tensors; None where that is not told."""
    overhead, slack = beside([memory.peak_bytes for memory in fit.memories], [run.process for run in fit.runs])
    return None if slack is None else round(overhead + (1 + slack) * peak)


def _changed(folder: Path, factor: float) -> int:
    with Run.open(folder) as run:
        parameters = tuple(run.sql("select name, bytes, bucket from parameters where rank = 0").fetchall())
        memory = next(iter(memories(run)))
    assert CHANGE.remember is not None
    return CHANGE.remember(memory, str(factor), Facts(times=None, parameters=parameters)).memory.peak_bytes


def _trial(trial: Trial, asked: argparse.Namespace) -> dict[str, Any]:
    fit = fit_batches([_run(trial, size, asked) for size in trial.sizes])
    assert fit.peaks is not None, fit.unknown
    return {
        "job": trial.name,
        "sizes": list(trial.sizes),
        "error": fit.peaks.error,
        "times_linear": fit.times.is_linear if fit.times else None,
        "others": [
            _scored(fit, _run(trial, size, asked), asked.keep / trial.name / f"batch-{trial.sizes[1]}")
            for size in trial.others
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("--under", default="", help="a command that each job is run by, such as nice")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--only", default="", help="jobs, such as cnn-sgd")
    asked = parser.parse_args()
    wanted = set(filter(None, asked.only.split(",")))
    jobs = [_trial(trial, asked) for trial in TRIALS if not wanted or trial.name in wanted]
    told = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "torch": version("torch").partition("+")[0],
        "steps": asked.steps,
        "jobs": jobs,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
