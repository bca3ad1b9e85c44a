"""How well the replay of an unedited graph reproduces recorded runs, and how long building and replaying one takes.

    python benchmarks/replay.py ../shared/traces --json numbers.json
    python benchmarks/replay.py --speed
    python benchmarks/replay.py --speed --ranks 64 --layers 100 --steps 62

For each set: the mean step as the ledger has it and as replayed, the error, that of the worst step, the median and the
worst distance of a task's start from the recorded one (in shares of a step), and what the replayed step rests on that
nobody recorded: `unrecorded` is how much shorter it is without the time that streams stood still for nothing that was
recorded, `returns` how much without what calls took to return, beyond 50 us, after the device was done (allocations
aside, which have work of their own); `apart` is the share of collectives that were recorded without some of their
members, so that their time holds waiting.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lostflops import Run
from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.record import records
from lostflops.account.ledger.windows import WindowKind, window
from lostflops.core.errors import UsageError
from lostflops.ingest import ingest
from lostflops.predict.graph.build import build
from lostflops.predict.graph.device.part import device_part
from lostflops.predict.graph.editing import retime_graph
from lostflops.predict.graph.join import join
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import TaskGraph, TaskKind

SETS = {
    "modded-nanogpt 2025-12-11": "KellerJordan__modded-nanogpt/2025-12-11_NorMuonOptimsAndFixes/*.gz",
    "megatron tp8": "astra-sim__astra-sim/megatron-tp8/megatron_kineto*.gz",
    "Megatron-LM tp2": "NVIDIA__Megatron-LM/tp2/rank*.gz",
    "param dlrm": "facebookresearch__param/dlrm_kineto/*.gz",
    "HTA trace_filter": "facebookresearch__HolisticTraceAnalysis/trace_filter*.gz",
}
FOLDERS = ("meta-pytorch__torchrec/*/",)
SINGLE = (
    "KellerJordan__modded-nanogpt/2025-10-31*/*.gz",
    "KellerJordan__modded-nanogpt/2026-02-12*/*.gz",
    "AMD-AGI__TraceLens/*.json.gz",
    "facebookresearch__HolisticTraceAnalysis/*.json.gz",
    "pytorch__kineto/*resnet50*.gz",
    "ROCm__aorta/*.gz",
)
RETURN = 50_000


def sets(traces: Path) -> Iterator[tuple[str, list[Path]]]:
    """Runs of several ranks first."""
    for name, pattern in SETS.items():
        yield name, sorted(traces.glob(pattern))
    for pattern in FOLDERS:
        for folder in sorted(traces.glob(pattern)):
            yield f"torchrec {folder.name}", sorted(folder.glob("*.gz"))
    for pattern in SINGLE:
        for file in sorted(traces.glob(pattern)):
            if "trace_filter" not in file.name:
                yield file.name.split(".json")[0][:40], [file]


def graph_of(files: list[Path], folder: Path) -> TaskGraph | None:
    """None where no step of a device was recorded."""
    try:
        ingest(files, folder)
        with Run.open(folder) as run:
            if not run.sql("select 1 from steps where device_start is not null limit 1").fetchall():
                return None
            return build(run)
    except UsageError:
        return None


def measured(name: str, graph: TaskGraph) -> dict[str, Any]:
    done = replay(graph)
    steps = graph.steps.measured
    mean = float(steps.mean())
    known = graph.measured.start >= 0
    apart = np.abs(done.start - graph.measured.start)[known] / mean
    duration = graph.tasks.duration
    still = np.where(graph.tasks.kind == TaskKind.MARK, 0, duration)
    returns = (graph.tasks.kind == TaskKind.SYNC) & (graph.tasks.line != LINES.index("idle.alloc"))
    prompt = np.where(returns, np.minimum(duration, RETURN), duration)
    return {
        "set": name,
        "ranks": len(graph.ranks),
        "steps": len(graph.steps),
        "tasks": len(graph.tasks),
        "measured_ms": mean / 1e6,
        "replayed_ms": done.mean_step / 1e6,
        "error": done.mean_step / mean - 1,
        "worst_step": float(np.abs(done.step_times / steps - 1).max()),
        "start_median": float(np.median(apart)),
        "start_worst": float(apart.max()),
        "unrecorded": 1 - replay(retime_graph(graph, duration=still)).mean_step / done.mean_step,
        "returns": 1 - replay(retime_graph(graph, duration=prompt)).mean_step / done.mean_step,
        "apart": float(1 - graph.meetings.whole.mean()) if len(graph.meetings) else 0.0,
    }


HEAD = (
    f"{'set':42} {'ranks':>5} {'steps':>5} {'tasks':>7} {'measured':>9} {'replayed':>9} {'error':>8} {'worst':>7} "
    f"{'starts':>7} {'worst':>7} {'unrecorded':>10} {'returns':>7} {'apart':>6}"
)


def row(found: dict[str, Any]) -> str:
    return (
        f"{found['set']:42} {found['ranks']:5} {found['steps']:5} {found['tasks']:7} {found['measured_ms']:9.3f} "
        f"{found['replayed_ms']:9.3f} {found['error']:+8.3%} {found['worst_step']:7.2%} {found['start_median']:7.3%} "
        f"{found['start_worst']:7.2%} {found['unrecorded']:10.2%} {found['returns']:7.2%} {found['apart']:6.0%}"
    )


def accuracy(traces: Path) -> list[dict[str, Any]]:
    found = []
    print(HEAD)
    for name, files in sets(traces):
        with tempfile.TemporaryDirectory() as folder:
            graph = graph_of(files, Path(folder) / "run") if files else None
        if graph is not None:
            found.append(measured(name, graph))
            print(row(found[-1]), flush=True)
    errors = np.array([abs(one["error"]) for one in found if one["ranks"] > 1])
    if errors.size:
        print(f"runs of several ranks: {errors.size}, median {np.median(errors):.3%}, worst {errors.max():.3%}")
    return found


def speed(copies: int, layers: int, steps: int) -> dict[str, Any]:
    """One rank of a cluster of two, read and built as often as there are copies, then joined and replayed: copies know
    of no partner, so that their collectives are their own. Made and ingested before the clock starts."""
    from lostflops.testing import Model, SyntheticCluster, store  # noqa: PLC0415  only here

    cluster = SyntheticCluster(ranks=2, steps=steps, model=Model(layers=layers, buckets=min(layers, 8)))
    with tempfile.TemporaryDirectory() as folder:
        stored = store(cluster.generate(), Path(folder) / "run")
        with Run.open(stored) as run:
            began = time.perf_counter()
            parts = []
            for rank in range(copies):
                (record,) = records(run, [0])
                parts.append(replace(device_part(run, record, window(record, WindowKind.STEPS)), rank=rank))
            graph = join(run, parts)
            built = time.perf_counter()
    replay(graph)
    warm = time.perf_counter()
    replay(graph)
    return {
        "ranks": copies,
        "tasks": len(graph.tasks),
        "edges": len(graph.edges),
        "build_s": built - began,
        "replay_s": time.perf_counter() - warm,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path, nargs="?", help="folder of the public traces")
    parser.add_argument("--speed", action="store_true", help="time building and replaying a large synthetic graph")
    parser.add_argument("--ranks", type=int, default=1, help="copies of the synthetic rank")
    parser.add_argument("--layers", type=int, default=400)
    parser.add_argument("--steps", type=int, default=160, help="a million tasks with 400 layers")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    asked = parser.parse_args()
    found: Any = accuracy(asked.traces) if asked.traces else []
    if asked.speed:
        found = speed(asked.ranks, asked.layers, asked.steps)
        print(json.dumps(found, indent=2))
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
