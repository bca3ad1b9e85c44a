"""Modules that the frontier picks are wrapped, and the job is run: is the peak what was predicted, and the step?

A job is recorded as it is. Of its frontier two choices are taken: the cheapest with half of what can be saved, and the
one with the lowest peak. Each is predicted by `lostflops whatif`, then run: its peak is read from its own recording,
and what a step takes to one without from steps of both kinds that take turns in one process.

    python -m benchmarks.recomputation --keep FOLDER [--lock FILE] && python -m benchmarks.recomputation.render
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import torch

from lostflops.account.memory.read import memories
from lostflops.ingest import ingest
from lostflops.predict.whatif.recomputation.choose import Choice, cheapest, frontier
from lostflops.predict.whatif.recomputation.options import options
from lostflops.predict.whatif.recomputation.read import recomputable
from lostflops.predict.whatif.whatif import whatif
from lostflops.store.run import Run

RESULTS = Path(__file__).with_name("results")
JOB = Path(__file__).with_name("job.py")
JOBS = [(model, ranks) for model in ("mlp", "transformer") for ranks in (1, 2)]


def run_job(asked: argparse.Namespace, job: tuple[str, int], name: str, *more: str) -> Path:
    """Where it was recorded; what is there already is not run again."""
    model, ranks = job
    folder = asked.keep / f"{model}-{ranks}-{name}"
    if (folder / "run.json").exists():
        return folder
    port = 29700 + 10 * JOBS.index(job)
    if (folder / "capture").exists() and asked.kept:
        ingest([folder / "capture"], folder, workers=1)
        return folder
    launcher = ["-m", "torch.distributed.run", f"--nproc-per-node={ranks}", f"--master-port={port}"]
    command = [
        sys.executable,
        *(launcher if ranks > 1 else []),
        str(JOB),
        "--model",
        model,
        "--folder",
        str(folder),
        *more,
    ]
    locked = ["flock", str(asked.lock)] if asked.lock else []
    subprocess.run([*locked, "timeout", "-s", "KILL", "90", *command], check=True, stderr=subprocess.DEVNULL)
    ingest([folder / "capture"], folder, workers=1)
    return folder


def peak(folder: Path) -> int:
    run = Run.open(folder)
    try:
        return max(memory.peak_bytes for memory in memories(run))
    finally:
        run.close()


def chosen(folder: Path) -> tuple[dict[str, Any], dict[str, tuple[Choice, str]]]:
    """What is known before, and choices with the names of modules."""
    run = Run.open(folder)
    told = recomputable(run, max(memories(run), key=lambda memory: memory.peak_bytes))
    assert told is not None, f"{folder} has no memory"
    have = options(told.memory, told.calls)
    line = frontier(have)
    half = cheapest(have, (line[0].peak + line[-1].peak) // 2)
    assert half is not None
    picked = {"half": half, "lowest": line[-1]}
    named = {
        which: (choice, ",".join(told.calls.modules[at] for at in choice.chosen)) for which, choice in picked.items()
    }
    run.close()
    return {"peak": line[0].peak, "points": len(line), "rank": told.memory.rank}, named


def predicted(folder: Path, names: str) -> dict[str, Any]:
    run = Run.open(folder)
    told = whatif(run, [("recompute", names)], keep=False).to_json()
    run.close()
    before, after = told["baseline"]["measured_ns"], told["predicted_ns"]
    memory = {"peak": told["memory"]["after"], "low": told["memory"]["low"], "high": told["memory"]["high"]}
    return {"ratio": after / before, "interval": [ns / before for ns in told["interval"]], **memory}


def ratios(path: Path) -> dict[str, float]:
    """What steps with take to those without, the median over neighbouring turns."""
    turns = json.loads(path.read_text())
    pairs = list(zip(turns[::2], turns[1::2], strict=True))
    return {what: median(with_[what] / without[what] for with_, without in pairs) for what in ("seconds", "processor")}


def one_job(asked: argparse.Namespace, job: tuple[str, int]) -> list[dict[str, Any]]:
    found = []
    name = f"{job[0]}-{job[1]}"
    if asked.kept and not (asked.keep / f"{name}-base" / "capture").exists():
        return []
    base = run_job(asked, job, "base")
    before, choices = chosen(base)
    for which, (choice, picked) in choices.items():
        times, ran = asked.keep / f"{name}-{which}.json", asked.keep / f"{name}-{which}.modules"
        if asked.kept and not times.exists():
            continue
        if not ran.exists():
            ran.write_text(picked)
        names = ran.read_text()
        told = predicted(base, names)
        folder = run_job(asked, job, which, "--recompute", names, "--times", str(times))
        measured = {"peak": peak(folder), **ratios(times)}
        trial = {"job": job[0], "ranks": job[1], "choice": which, "modules": names.split(","), "before": before}
        trial |= {"still_picked": names == picked, "exact": choice.exact, "predicted": told, "measured": measured}
        found.append(trial)
        print(
            f"{name} {which}: peak {told['peak'] / measured['peak'] - 1:+.2%} step "
            f"{told['ratio'] / measured['seconds'] - 1:+.1%} ({told['ratio'] / measured['processor'] - 1:+.1%})",
            flush=True,
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, required=True, metavar="DIR")
    parser.add_argument("--lock", type=Path, help="held while a job runs, where others measure too")
    parser.add_argument("--kept", action="store_true", help="judge what was run, and run nothing")
    asked = parser.parse_args()
    asked.keep.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(len(JOBS) if asked.lock else 1) as pool:
        trials = [trial for found in pool.map(lambda job: one_job(asked, job), JOBS) for trial in found]
    facts = {"machine": f"{platform.machine()}, {os.cpu_count()} cores", "torch": torch.__version__}
    facts["date"] = datetime.now(UTC).date().isoformat()
    (RESULTS / "checkpointed.json").write_text(json.dumps({**facts, "trials": trials}, indent=1) + "\n")


if __name__ == "__main__":
    main()
