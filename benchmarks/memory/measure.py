"""A job recorded by lostflops, the same job that counts by itself, and both side by side."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.memory.experiments import RANKS, Experiment
from benchmarks.memory.truth import COUNT, FIRST

from lostflops.account.ledger.phases import BACKWARD, FORWARD, OPTIMIZER
from lostflops.account.memory.blocks import BEFORE, RankMemory
from lostflops.account.memory.owners import OWNERS
from lostflops.account.memory.peak import peak_of
from lostflops.account.memory.read import memories
from lostflops.store.run import Run

JOB = Path(__file__).with_name("job.py")
LOSTFLOPS = (sys.executable, "-c", "from lostflops.cli.main import main; main()")


def measured(experiment: Experiment, folder: Path) -> dict[str, Any]:
    """Of each rank."""
    recorded, counted = folder / experiment.name, folder / f"{experiment.name}-truth"
    preloaded = {"LD_PRELOAD": str(_counter(folder))}
    if not (counted / "done").exists():
        counted.mkdir(parents=True, exist_ok=True)
        _do((*_job(experiment), "--truth", str(counted)), preloaded)
        (counted / "done").touch()
    if not recorded.exists():
        what = ("--steps", f"{FIRST}:{COUNT}", "--with", "shapes,modules,memory", "--out", str(recorded))
        _do((*LOSTFLOPS, "run", *what, "--", *_job(experiment), "--peak", str(counted)), preloaded)
    with Run.open(recorded) as run:
        ranks = [_beside(memory, _truth(counted, memory.rank)) for memory in memories(run)]
    return {"experiment": experiment.name, "job": " ".join(experiment.words), "ranks": ranks}


def _job(experiment: Experiment) -> tuple[str, ...]:
    torchrun = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}")
    return (sys.executable, *(torchrun if experiment.how != "single" else ()), str(JOB), *experiment.words)


def _truth(folder: Path, rank: int) -> dict[str, Any]:
    """`recorded_peak` was counted in the run that lostflops recorded."""
    told: dict[str, Any] = json.loads((folder / f"{rank}.json").read_text())
    return {**told, "recorded_peak": int((folder / f"{rank}.txt").read_text())}


def _beside(memory: RankMemory, truth: dict[str, Any]) -> dict[str, Any]:
    memory.self_check()
    peak = peak_of(memory)
    after = memory.by_owner()[1:]
    forward, update = _ends(memory)
    found = dict(zip(OWNERS, after[update].tolist(), strict=True))
    ledger = {owner.value: found[owner] for owner in OWNERS if owner in ("parameters", "gradients", "optimizer_state")}
    activations = after[forward, OWNERS.index("activations")]
    return {
        "rank": memory.rank,
        "events": int(memory.total.size),
        "ledger": {
            **ledger,
            "saved": int(activations),
            "peak": peak.bytes,
            "phase": peak.phase,
            "module": peak.module or "",
            "op": peak.op,
            "step": peak.step,
            "unattributed": peak.unattributed_share,
            "owners": {owner.value: held for owner, held in peak.owners.items()},
        },
        "notes": memory.notes,
        "truth": truth,
    }


def _ends(memory: RankMemory) -> tuple[int, int]:
    """The last event of the first forward pass, and the last ahead of the first update after it."""
    blocks = memory.blocks
    inside = blocks.born != BEFORE
    phase = np.full(memory.time.size, -1)
    phase[blocks.born[inside]] = blocks.phase[inside]
    known = np.flatnonzero(phase >= 0)
    first = int(known[phase[known] == FORWARD][0])
    turns = known[(phase[known] == BACKWARD) & (known > first)][0]
    update = known[(phase[known] == OPTIMIZER) & (known > turns)]
    return int(turns) - 1, int(update[0]) if update.size else memory.time.size - 1


def _counter(folder: Path) -> Path:
    """The library that counts, compiled."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "alive.so"
    if not library.exists():
        _do(("cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(JOB.with_name("alive.c")), "-ldl", "-lpthread"))
    return library


def _do(command: tuple[str, ...], variables: Mapping[str, str] | None = None) -> None:
    environment = {**os.environ, **(variables or {})}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)
    if done.returncode:
        sys.exit(f"{' '.join(command)}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def machine() -> str:
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, torch {version('torch')}"
