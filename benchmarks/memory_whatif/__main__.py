"""Peaks of memory predicted from one recorded run and measured in another that was changed so.

    python -m benchmarks.memory_whatif                 # all experiments, into benchmarks/memory_whatif/results
    python -m benchmarks.memory_whatif --only zero-1-mlp-2
    python -m benchmarks.memory_whatif.render          # the section in docs/explanation/memory-whatif.md

A job is recorded, `lostflops whatif` predicts its peak with a change, then the changed job is recorded. Its steps are
alike, so that their peaks are; what the recording misses only adds to some: threads of gloo free blocks where the
profiler does not look, and on a CPU blocks from before the window are seen gone at the next edge of a phase. So the
least of a rank's steps is taken, and of the ranks the one with most; the highest of all events is kept beside it.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lostflops.account.memory.blocks import RankMemory
from lostflops.account.memory.owners import OWNERS
from lostflops.account.memory.read import memories
from lostflops.store.run import Run

HERE = Path(__file__).parent
RELU = HERE.parents[1] / "examples" / "relu_mask" / "train.py"
LOSTFLOPS = (sys.executable, "-c", "from lostflops.cli.main import main; main()")


@dataclass(frozen=True)
class Experiment:
    """`before` and `after` are words of the jobs; ranks of 0 stand for a process without torchrun."""

    name: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    changes: tuple[str, ...]
    ranks: tuple[int, int]
    script: Path = HERE / "job.py"


def _sharding() -> list[Experiment]:
    found = []
    for model, optimizer in (("mlp", "AdamW"), ("transformer", "AdamW"), ("transformer", "SGD")):
        words = ("--model", model, "--optimizer", optimizer, *(("--width", "256") if model == "mlp" else ()))
        label = model if optimizer == "AdamW" else f"{model}-sgd"
        for ranks in (2, 4):
            grown = (f"world_size={ranks}",) if ranks != 2 else ()
            for kind, how in (("1", "zero1"), ("3", "fsdp2")):
                after = ("--how", how, *words)
                name = f"zero-{kind}-{label}-{ranks}"
                found.append(Experiment(name, ("--how", "ddp", *words), after, (*grown, f"zero={kind}"), (2, ranks)))
        sharded = ("--how", "fsdp2", *words)
        found.append(Experiment(f"fsdp2-{label}-2-to-4", sharded, sharded, ("world_size=4",), (2, 4)))
    return found


EXPERIMENTS = (
    *_sharding(),
    Experiment("relu-mask", ("--relu", "plain"), ("--relu", "mask"), ("encode=relu_mask",), (0, 0), RELU),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--keep", type=Path, help="folder for the runs; those that are there are used again")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        for experiment in EXPERIMENTS:
            if not options.only or experiment.name in options.only:
                found = measured(experiment, folder)
                (HERE / "results").mkdir(exist_ok=True)
                path = HERE / "results" / f"{experiment.name}.json"
                path.write_text(json.dumps(found, indent=1) + "\n")
                print(f"{experiment.name}: {found['predicted']:,} for {found['measured']:,}: {found['error']:+.1%}")


def measured(experiment: Experiment, folder: Path) -> dict[str, Any]:
    before = recorded(experiment.script, experiment.before, experiment.ranks[0], folder)
    after = recorded(experiment.script, experiment.after, experiment.ranks[1], folder)
    asked = [word for change in experiment.changes for word in ("--change", change)]
    told = json.loads(_output((*LOSTFLOPS, "whatif", str(before), *asked, "--json")))
    memory = told["memory"]
    assert memory is not None, told["memory_unknown"]
    peak, highest, owners = peaks(after)
    return {
        "experiment": experiment.name,
        "before_job": " ".join(experiment.before),
        "after_job": " ".join(experiment.after),
        "changes": list(experiment.changes),
        "ranks": list(experiment.ranks),
        "before": memory["before"],
        "predicted": memory["after"],
        "interval": [memory["low"], memory["high"]],
        "measured": peak,
        "highest": highest,
        "error": memory["after"] / peak - 1,
        "saving_error": (memory["before"] - memory["after"]) / (memory["before"] - peak) - 1,
        "owners_predicted": memory["owners_after"],
        "owners_measured": owners,
        "machine": f"{platform.machine()}, Python {platform.python_version()}, torch {version('torch')}",
    }


def recorded(script: Path, words: tuple[str, ...], ranks: int, folder: Path) -> Path:
    out = folder / "-".join([script.stem, str(ranks), *(word.strip("-") for word in words)])
    if not out.exists():
        torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}")
        command = (*(torchrun if ranks else (sys.executable,)), str(script), *words, "--steps", "8")
        what = ("--steps", "4:2", "--with", "shapes,modules,memory", "--out", str(out), "--", *command)
        _output((*LOSTFLOPS, "run", *what))
    return out


def peaks(path: Path) -> tuple[int, int, dict[str, int]]:
    """What a step takes: the least of its steps' peaks, of the rank that has most; with its owners. And the highest of
    all events, which holds more where frees were not seen."""
    with Run.open(path) as run:
        found = list(memories(run))
    events = [min(_steps(memory), key=lambda event, memory=memory: int(memory.total[event])) for memory in found]
    most, event = max(zip(found, events, strict=True), key=lambda one: int(one[0].total[one[1]]))
    held = most.by_owner()[event + 1].tolist()
    owners = {owner.value: size for owner, size in zip(OWNERS, held, strict=True)}
    return int(most.total[event]), max(memory.peak_bytes for memory in found), owners


def _steps(memory: RankMemory) -> Iterator[int]:
    """The event of each step's peak."""
    blocks = memory.blocks
    for step in sorted(set(blocks.step.tolist()) - {-1}):
        born = blocks.born[(blocks.step == step) & (blocks.born >= 0)]
        yield int(born[memory.total[born].argmax()])


def _output(command: tuple[str, ...]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        sys.exit(f"{' '.join(command)}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    main()
