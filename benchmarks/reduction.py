"""How soon a window is in the run, and what that costs the steps meanwhile.

    python benchmarks/reduction.py --repeats 5 --json reduction.json

Four gloo ranks on this machine, in two jobs: `busy` computes all the time on more processes than there are cores,
`waiting` sleeps most of each step, as a host does whose device computes. Each is recorded in two ways, in turn: reduced
(windows become rows where they were recorded, and the run is made while training goes on) and exported (windows become
compressed traces, and nothing else happens before the job's end).

Seconds are from the last rank's "stopped" to a run that opens and holds all ranks. Steps are compared within a job:
those that begin within 5 s of the window's end against those that begin from 10 s after it on. Ratios are those of
medians and of means over all ranks, with a 95% interval by bootstrap over repeats, and the most of them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from lostflops.collect.capture import read_frames
from lostflops.collect.command import recorded_environment
from lostflops.collect.settings import Settings
from lostflops.store.run import Run

RANKS = 4
WINDOW = "10:3"
MEANWHILE, LATER = 5.0, 10.0
"""Seconds behind the window's end: until which steps count as meanwhile, and from which on as later."""
JOBS = {"busy": 0.0, "waiting": 0.4}
JOB = Path(__file__).with_name("reduction_job.py")
LAUNCH = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS), str(JOB)]
BOOTSTRAPS = 2000
IDLE = 0.9


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


def started(run: Path, way: str, words: Sequence[str]) -> subprocess.Popen[bytes]:
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    command = [sys.executable, *words]
    if way == "reduced":
        program = "from lostflops.cli.main import main; main()"
        ours = [sys.executable, "-c", program, "run", "--out", str(run), "--steps", WINDOW, "--"]
        return subprocess.Popen([*ours, *command], env=environment(), **quiet)
    (run / "capture" / "windows").mkdir(parents=True)
    settings = Settings(folder=run / "capture", steps=WINDOW)
    return subprocess.Popen(command, env=recorded_environment(environment(), settings), **quiet)


def holds_all(run: Path) -> bool:
    """Whether the run opens and has the events of all ranks; asked only where its manifest says so."""
    try:
        sources = json.loads((run / "run.json").read_bytes())["sources"]
    except (OSError, ValueError):
        return False
    if len({source["rank"] for source in sources if source["events"]}) < RANKS:
        return False
    with Run.open(run) as opened:
        return opened.sql("select count(distinct rank) from events").fetchall() == [(RANKS,)]


def idle_share() -> float:
    """Of all cores, over a second."""

    def ticks() -> tuple[int, int]:
        fields = list(map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9]))
        return fields[3] + fields[4], sum(fields)

    (idle, whole), _ = ticks(), time.sleep(1)
    later, all_later = ticks()
    return (later - idle) / (all_later - whole)


def quiet(seconds: float) -> float:
    """Wait so long at most for two seconds in which nobody else computes; the share of idle time before we begin."""
    end = time.monotonic() + seconds
    while (found := min(idle_share(), idle_share())) < IDLE and time.monotonic() < end:
        pass
    return found


def measured(folder: Path, way: str, rest: float, seconds: float) -> dict[str, Any]:
    run = folder / "run"
    there = None
    process = started(run, way, [*LAUNCH, str(seconds), str(rest)])
    while process.poll() is None:
        if there is None and way == "reduced" and (run / "run.json").exists() and holds_all(run):
            there = (run / "run.json").stat().st_mtime_ns
        time.sleep(0.05)
    assert process.stderr is not None
    said = process.stderr.read().decode(errors="replace")
    assert process.returncode == 0, said
    records = [
        record
        for path in sorted((run / "capture").glob("*.capture"))
        for frame in read_frames(path)[0]
        for record in frame.records
    ]
    return judged(run, records, there)


def judged(run: Path, records: Sequence[dict[str, Any]], there: int | None) -> dict[str, Any]:
    windows = [record for record in records if record["kind"] == "window"]
    stopped = max(record["time"] for record in windows if record["state"] == "stopped")
    exported = [record for record in windows if record["state"] == "exported"]
    is_exported = len(exported) == RANKS
    steps = [record for record in records if record["kind"] == "step" and not record["profiled"]]

    def between(first: float, last: float) -> list[float]:
        begun = ((step["start"] - stopped) / 1e9 for step in steps)
        return [
            (step["stop"] - step["start"]) / 1e6
            for step, since in zip(steps, begun, strict=True)
            if first <= since < last
        ]

    meanwhile, later = between(0, MEANWHILE), between(LATER, 1e9)
    forms = {".parts": "parts", ".json.gz": "raw"}
    sizes = {
        name: sum(path.stat().st_size for path in (run / "capture").glob(f"*{end}")) for end, name in forms.items()
    }
    return {
        "seconds_to_run": None if there is None else (there - stopped) / 1e9,
        "seconds_to_traces": (max(record["time"] for record in exported) - stopped) / 1e9 if is_exported else None,
        "steps_meanwhile": len(meanwhile),
        "step_ms_later": median(later),
        "median_ratio": median(meanwhile) / median(later),
        "mean_ratio": mean(meanwhile) / mean(later),
        "bytes": {name: size for name, size in sizes.items() if size},
        "not_reduced": sorted({record["reason"] for record in exported if record["reason"]}),
    }


def interval(values: Sequence[float]) -> dict[str, float]:
    chance = random.Random(0)
    drawn = sorted(median(chance.choices(values, k=len(values))) for _ in range(BOOTSTRAPS))
    return {
        "median": median(values),
        "low": drawn[int(0.025 * BOOTSTRAPS)],
        "high": drawn[int(0.975 * BOOTSTRAPS)],
        "least": min(values),
        "most": max(values),
    }


def summary(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    names = ("seconds_to_run", "seconds_to_traces", "step_ms_later", "median_ratio", "mean_ratio")
    told = {name: interval(values) for name in names if None not in (values := [one[name] for one in found])}
    # What was not there before the job's end has no interval.
    late = {f"{name}_late": sum(one[name] is None for one in found) for name in names[:2]}
    return {
        **told,
        **late,
        "bytes": found[-1]["bytes"],
        "not_reduced": sorted({why for one in found for why in one["not_reduced"]}),
    }


def show(job: str, way: str, told: dict[str, Any]) -> None:
    def said(name: str, digits: int) -> str:
        if name not in told:
            return "-"
        middle, low, high, most = (f"{told[name][key]:.{digits}f}" for key in ("median", "low", "high", "most"))
        return f"{middle} ({low} to {high}, most {most})"

    cells = [job, way, *(said(name, digits) for name, digits in (("seconds_to_run", 1), ("seconds_to_traces", 1)))]
    cells += [said(name, digits) for name, digits in (("step_ms_later", 0), ("median_ratio", 3), ("mean_ratio", 3))]
    sizes = ", ".join(f"{name} {size:,}" for name, size in told["bytes"].items())
    print("| " + " | ".join([*cells, sizes]) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=25)
    parser.add_argument("--jobs", nargs="+", choices=list(JOBS), default=list(JOBS))
    parser.add_argument("--patience", type=float, default=0, help="seconds to wait for an idle machine, each time")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for _ in range(options.repeats):
        for job in options.jobs:
            for way in ("reduced", "exported"):
                idle = quiet(options.patience)
                folder = Path(tempfile.mkdtemp(prefix="lostflops-reduction-"))
                one = {"idle_before": idle} | measured(folder, way, JOBS[job], options.seconds)
                shutil.rmtree(folder)
                print(job, way, json.dumps(one), file=sys.stderr, flush=True)
                found.setdefault((job, way), []).append(one)
    cores = len(os.sched_getaffinity(0))
    print(f"{RANKS} gloo ranks on {cores} cores of {platform.machine()}, {options.repeats} repeats")
    print(
        "| job | window | s to the run | s to the traces | step, ms | median ratio | mean ratio | bytes of all ranks |"
    )
    print("|---|---|---|---|---|---|---|---|")
    told = {key: summary(ones) for key, ones in found.items()}
    for key, one in told.items():
        show(*key, one)
    if options.json:
        named = {" ".join(key): {**one, "repeats": found[key]} for key, one in told.items()}
        document = {"cores": cores, "machine": platform.platform(), "found": named}
        options.json.write_text(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
