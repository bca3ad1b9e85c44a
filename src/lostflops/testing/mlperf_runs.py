"""Step times that MLPerf Training results logged, as summaries of runs of which only the pace is known."""

from __future__ import annotations

import csv
import gzip
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Final

from lostflops.fleet.summary import PaceSummary, RunSummary

_NAME: Final = "llama31_405b"
_START: Final = 1_746_000_000 * 10**9
"""Results state no time of start: runs of a system follow each other from here."""
_PACES: Final = 20
_STALLED: Final = 2
"""Steps longer than so many normal ones are stalled."""


def read_mlperf_runs(folder: Path) -> list[RunSummary]:
    """Read the runs of a folder with `llama31_405b.csv` and `llama31_405b_steps.csv.gz`."""
    with (folder / f"{_NAME}.csv").open(encoding="utf-8", newline="") as file:
        systems = {row["system"]: (int(row["gpus"]), row["device"]) for row in csv.DictReader(file)}
    runs, starts = [], dict.fromkeys(systems, _START)
    with gzip.open(folder / f"{_NAME}_steps.csv.gz", "rt", encoding="utf-8", newline="") as file:
        for (system, number), rows in groupby(csv.DictReader(file), lambda row: (row["system"], row["run"])):
            logged = [(int(row["samples"]), float(row["step_s"])) for row in rows]
            run = _make_run(f"{system}-{number}", system, logged, systems[system], starts[system])
            starts[system] = run.stop
            runs.append(run)
    return runs


def _make_run(
    name: str, system: str, logged: list[tuple[int, float]], machine: tuple[int, str], start: int
) -> RunSummary:
    """Make the summary of one run from samples and seconds of its steps."""
    ranks, device = machine
    steps = [round(seconds * 1e9) for _, seconds in logged]
    normal = int(median(steps[1:]))
    life = _split_life(steps, normal, ranks)
    rest = sorted(steps[1:])
    middle = (rest[len(rest) * 3 // 4] - rest[len(rest) // 4]) / 1.35
    return RunSummary(
        run=f"mlperf-{name}",
        name=f"{_NAME}-{system}",
        labels={"job": _NAME, "system": system},
        address=f"mlperf://{name}",
        start=start,
        stop=start + sum(steps),
        attempts=1,
        ranks=ranks,
        device=device,
        backend="nccl",
        torch=None,
        lostflops="1.0",
        commit=None,
        steps=len(steps),
        step_ns=float(normal),
        step_error=1.25 * middle / normal / len(rest) ** 0.5,
        tokens_per_second=None,
        samples_per_second=(logged[-1][0] - logged[0][0]) / (sum(steps[1:]) / 1e9),
        mfu=None,
        total_ns=sum(life.values()),
        life=life,
        window_ns=0,
        lines={},
        hosts=[],
        pace=_make_pace(steps, start),
        findings=[],
    )


def _split_life(steps: list[int], normal: int, ranks: int) -> dict[str, int]:
    """Split the time of all steps: what the first takes beyond a normal step is the start."""
    starting = max(steps[0] - normal, 0)
    stalled = sum(step - normal for step in steps[1:] if step > _STALLED * normal)
    training = sum(steps) - starting - stalled
    return {"training": training * ranks, "starting": starting * ranks, "stalled": stalled * ranks}


def _make_pace(steps: list[int], start: int) -> list[PaceSummary]:
    """Make intervals with equal numbers of steps; the last steps may be too few for one."""
    length = max(1, len(steps) // _PACES)
    paces = []
    for first in range(0, len(steps) - length + 1, length):
        part = sorted(steps[first : first + length])
        paces.append(
            PaceSummary(
                attempt=0,
                start=start + sum(steps[:first]),
                steps=length,
                step_ns=float(median(part)),
                slow_ns=float(part[int(0.95 * (length - 1))]),
            )
        )
    return paces
