"""Real runs of one job against real runs of the same job, and of one with a tenth more work.

A pair is `--runs-per-side` runs of a job, as many of the same again, and as many whose steps take a tenth longer; all
on one core. `lostflops diff` should find no difference between the first two, and that the third is slower. On a
machine whose own speed wanders, what runs in turn meets different machines: by default all runs of a pair share the
core for as many seconds, with `--in-turn` they follow one another in random order. A pair that is in the folder to
keep is not run again.

    python -m benchmarks.diff.real --pairs 40 --runs-per-side 5 --keep FOLDER [--cores 0,1] [--in-turn]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import sys
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import nn

import lostflops
from lostflops.explain.compare.diff import diff
from lostflops.explain.compare.sides import read_pair
from lostflops.ingest import ingest

RESULTS = Path(__file__).with_name("results")
SIDES = ("job", "same", "slow")
LAYERS = {"job": 90, "same": 90, "slow": 100}
"""Nearly all of a step is layers."""
WIDTH, BATCH = 192, 48


class Model(nn.Module):
    """Applies the same layers over and over, so that more work is no other model."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.head = nn.Linear(WIDTH, 10)
        self._count = layers

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        for number in range(self._count):
            value = value + torch.relu(self.layers[number % 2](value))
        return self.head(value)


def train(run: Path, layers: int, seconds: float) -> float:
    """Seconds of the processor that a step took."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Model(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    batch = torch.randn(BATCH, WIDTH)
    steps = 0
    # Runs that share a core make the collector dear by the clock, and it would stop early.
    with lostflops.record(run, steps="none", overhead=0.1):
        began, end = time.process_time(), time.perf_counter() + seconds
        while time.perf_counter() < end:
            model(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
        return (time.process_time() - began) / steps


def recorded(run: Path, layers: int, seconds: float) -> None:
    spent = train(run, layers, seconds)
    run.with_suffix(".json").write_text(json.dumps(spent))


def warm() -> None:
    """What an optimizer imports at its first step; no backward pass, whose threads do not survive a fork."""
    model = Model(1)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    torch.optim.SGD(model.parameters(), lr=1e-6).step()


def forked(work: Callable[[], None]) -> int:
    """The process that does it, from one that has imported everything and opened nothing: DuckDB has threads then."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    except BaseException:  # noqa: BLE001 - a child must never return into its parent's work
        traceback.print_exc()
    finally:
        os._exit(code)


def wait(child: int) -> None:
    _, status = os.waitpid(child, 0)
    if status:
        raise SystemExit(f"a process failed: {os.waitstatus_to_exitcode(status)}")


def one_pair(folder: Path, asked: argparse.Namespace, number: int) -> None:
    order = [(side, folder / f"{side}-{count}") for side in SIDES for count in range(asked.runs_per_side)]
    random.Random(number).shuffle(order)
    started: list[int] = []
    for side, run in order:
        child = forked(lambda run=run, side=side: recorded(run, LAYERS[side], asked.seconds))
        if asked.in_turn:
            wait(child)
        else:
            started.append(child)
    for child in started:
        wait(child)
    for _, run in order:
        wait(forked(lambda run=run: ingest([run / "capture"], run, workers=1)))
    wait(forked(lambda: judged(folder, number, asked.runs_per_side)))


def judged(folder: Path, number: int, runs: int) -> None:
    def told(side: str) -> dict[str, Any]:
        paths = [[folder / f"{name}-{count}" for count in range(runs)] for name in ("job", side)]
        found = diff(read_pair(paths[0], paths[1])).to_json()
        step = found["step"]
        kept = ("change", "low", "high", "mean_change", "mean_low", "mean_high", "before_ns", "between_runs")
        return {"answer": found["answer"], "steps": sum(step["steps"]), **{name: step[name] for name in kept}}

    def spent(side: str) -> float:
        return fmean(json.loads((folder / f"{side}-{count}.json").read_text()) for count in range(runs))

    score = {"pair": number, "runs": runs, "planted": spent("slow") / spent("job") - 1}
    score |= {"same": told("same"), "slow": told("slow")}
    (folder / "pair.json").write_text(json.dumps(score))


def pinned(core: int, numbers: list[int], asked: argparse.Namespace) -> None:
    os.sched_setaffinity(0, {core})
    for number in numbers:
        folder = asked.keep / f"pair-{number:03d}"
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "pair.json").exists():
            began = time.perf_counter()
            one_pair(folder, asked, number)
            print(f"pair {number} on core {core}: {time.perf_counter() - began:.1f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--runs-per-side", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=40.0, help="of a run")
    parser.add_argument("--in-turn", action="store_true", help="one run after the other, in random order")
    parser.add_argument("--cores", default="0,1")
    parser.add_argument("--keep", type=Path, required=True, metavar="DIR")
    asked = parser.parse_args()
    asked.keep = asked.keep.absolute()
    cores = [int(core) for core in asked.cores.split(",")]
    torch.set_num_threads(1)
    warm()
    every = range(asked.pairs)
    for child in [forked(lambda i=i: pinned(cores[i], list(every[i :: len(cores)]), asked)) for i in range(len(cores))]:
        wait(child)
    pairs = [json.loads((asked.keep / f"pair-{number:03d}" / "pair.json").read_text()) for number in every]
    facts = {"machine": f"{platform.machine()}, {os.cpu_count()} cores", "torch": torch.__version__}
    facts |= {"date": datetime.now(UTC).date().isoformat(), "cores": asked.cores, "seconds": asked.seconds}
    (RESULTS / ("real-in-turn.json" if asked.in_turn else "real.json")).write_text(
        json.dumps({**facts, "pairs": pairs}, indent=1) + "\n"
    )
    wrong = sum(pair["same"]["answer"] in ("faster", "slower") for pair in pairs)
    found = sum(pair["slow"]["answer"] == "slower" for pair in pairs)
    print(f"{len(pairs)} pairs: {wrong} alike ones called different, {found} slower ones found")


if __name__ == "__main__":
    main()
