"""Compare one real run with one real run: of the same job, and of jobs with 30% and 100% more work.

A run is a short job of two ranks over gloo. The four runs of a pair follow one another in random order, on whatever
else the machine does. `lostflops diff` should call the first two alike or inconclusive, and find the other two. A pair
that is in the folder to keep is not run again; `--judge` judges the kept ones again and runs nothing.

    python -m benchmarks.diff.one_run --pairs 12 --keep FOLDER [--judge]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import time
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from benchmarks.diff.real import BATCH, RESULTS, WIDTH, Model, forked, wait, warm

import lostflops
from lostflops.account.pace.blocks import typical
from lostflops.core.stats import MachineKind
from lostflops.explain.compare.change import change
from lostflops.explain.compare.diff import diff
from lostflops.explain.compare.sides import RunPair, read_pair
from lostflops.ingest import ingest

LAYERS: Final = {"job": 100, "same": 100, "third": 130, "double": 200}
"""Nearly all of a step is layers, so that the planted differences are 30% and 100%."""
RANKS: Final = 2
KEPT: Final = ("change", "low", "high", "before_ns", "between_runs", "between_steps")


def train(run: Path, layers: int, rank: int, steps: int) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "LOCAL_RANK": str(rank)}
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Model(layers)
    with lostflops.record(run, steps="none", overhead=0.1):
        dist.init_process_group("gloo", init_method=f"file://{run}.store", rank=rank, world_size=RANKS)
        parallel = torch.nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
        batch = torch.randn(BATCH, WIDTH)
        for _ in range(steps):
            parallel(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        dist.destroy_process_group()


def make_pair(folder: Path, number: int, steps: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    sides = list(LAYERS)
    random.Random(number).shuffle(sides)
    for side in sides:
        run = folder / side
        for child in [forked(partial(train, run, LAYERS[side], rank, steps)) for rank in range(RANKS)]:
            wait(child)
        wait(forked(partial(_ingest, run)))


def _ingest(run: Path) -> None:
    ingest([run / "capture"], run, workers=1)


def sign_without_drift(pair: RunPair) -> int:
    """Return the sign that the steps' error and a constant spread between runs would call; 0 for none."""
    sides = [
        [replace(typical(run.steps.per(pair.unit)), drift=0.0) for run in side] for side in (pair.before, pair.after)
    ]
    return change(sides[0], sides[1], MachineKind.HOST).sign


def judge(folder: Path, number: int) -> None:
    score: dict[str, Any] = {"pair": number}
    for side in ("same", "third", "double"):
        pair = read_pair([folder / "job"], [folder / side], anyway=True)
        result = diff(pair).to_json()
        step = result["step"]
        score[side] = {"answer": result["answer"], "steps": step["steps"], **{name: step[name] for name in KEPT}}
        score[side]["sign_without_drift"] = sign_without_drift(pair)
    (folder / "pair.json").write_text(json.dumps(score))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--steps", type=int, default=60, help="of a run")
    parser.add_argument("--keep", type=Path, required=True, metavar="DIR")
    parser.add_argument("--judge", action="store_true", help="judge kept pairs again, run nothing")
    asked = parser.parse_args()
    keep = asked.keep.absolute()
    torch.set_num_threads(1)
    warm()
    folders = [keep / f"pair-{number:03d}" for number in range(asked.pairs)]
    for number, folder in enumerate(folders):
        began = time.perf_counter()
        if not asked.judge and not (folder / "pair.json").exists():
            make_pair(folder, number, asked.steps)
        wait(forked(partial(judge, folder, number)))
        print(f"pair {number}: {time.perf_counter() - began:.1f} s", flush=True)
    pairs = [json.loads((folder / "pair.json").read_text()) for folder in folders]
    facts = {"machine": f"{platform.machine()}, {os.cpu_count()} cores", "torch": torch.__version__}
    facts |= {"date": datetime.now(UTC).date().isoformat(), "steps": asked.steps, "ranks": RANKS}
    (RESULTS / "one-run.json").write_text(json.dumps({**facts, "pairs": pairs}, indent=1) + "\n")
    for side in ("same", "third", "double"):
        print(side, [pair[side]["answer"] for pair in pairs])


if __name__ == "__main__":
    main()
