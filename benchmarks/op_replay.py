"""Replay of op traces against what "Understanding Stragglers in Large Model Training Using What-if Analysis" published.

    python benchmarks/op_replay.py ../shared/traces/ByteDance-Seed__StragglerAnalysis

For each trace: errors of the replayed steps, median and worst, as recorded, without launch delays, and with every op
balanced; then who is to blame for the slowdown by data parallel rank, stage and type of op, ours and theirs.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lostflops.ingest.ingest import ingest
from lostflops.predict.graph.build import build
from lostflops.predict.graph.replay import Schedule, replay
from lostflops.predict.graph.tasks import TaskGraph
from lostflops.predict.whatif.changes.imbalance import balance_ops, op_types, slowdowns
from lostflops.store.run import Run


def without_delays(graph: TaskGraph) -> TaskGraph:
    return replace(
        graph,
        tasks=replace(graph.tasks, gap=np.zeros_like(graph.tasks.gap)),
        edges=replace(graph.edges, delay=np.zeros_like(graph.edges.delay)),
        lanes=replace(graph.lanes, origin=np.zeros_like(graph.lanes.origin)),
    )


def step_times(done: Schedule) -> dict[str, float]:
    """Seconds from the first start to the last stop on any rank."""
    step = done.graph.tasks.step
    order = np.argsort(step, kind="stable")
    number, first = np.unique(step[order], return_index=True)
    start, stop = np.minimum.reduceat(done.start[order], first), np.maximum.reduceat(done.stop[order], first)
    return dict(zip(map(str, number.tolist()), ((stop - start) / 1e9).tolist(), strict=True))


def errors(ours: Mapping[str, float], theirs: Mapping[str, float]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([ours[step] / theirs[step] - 1 for step in theirs])


def groups(run: Run, graph: TaskGraph) -> dict[str, tuple[np.ndarray[Any, Any], tuple[str, ...]]]:
    """Tasks by data parallel rank, stage and type of op, as the published results split them."""
    stage = dict(run.sql("select distinct rank, stage from passes").fetchall())
    ranks = sorted(stage)
    place = {rank: sum(stage[other] == stage[rank] for other in ranks if other < rank) for rank in ranks}
    types, of_task = op_types(graph)
    return {
        "dp_rank": (_by_rank(graph, place), tuple(map(str, range(max(place.values()) + 1)))),
        "stage": (_by_rank(graph, stage), tuple(map(str, range(max(stage.values()) + 1)))),
        "optype": (of_task, types),
    }


def _by_rank(graph: TaskGraph, of_rank: Mapping[int, int]) -> np.ndarray[Any, Any]:
    known = np.full(max(of_rank) + 1, -1)
    known[list(of_rank)] = list(of_rank.values())
    return known[graph.rank]


def compare(trace: Path, published: Mapping[str, Any], folder: Path) -> None:
    ingest([trace], folder, workers=1)
    with Run.open(folder) as run:
        began = time.perf_counter()
        graph = build(run)
        split = groups(run, graph)
    print(f"\n{trace.name}: {len(graph.tasks):,} tasks, built in {time.perf_counter() - began:.1f} s")
    plain, eager = graph, without_delays(graph)
    for what, changed, against in (
        ("as recorded", plain, "step_t_base"),
        ("as recorded", plain, "step_t_nodelay"),
        ("no delays", eager, "step_t_nodelay"),
        ("balanced", balance_ops(eager), "step_t_noblk"),
    ):
        found = errors(step_times(replay(changed)), published[against])
        worst = found[np.abs(found).argmax()]
        print(f"  {what:12} against {against:15} median {np.median(found):+.2%}  worst {worst:+.2%}")
    for by, (of_task, names) in split.items():
        ours, theirs = slowdowns(eager, of_task, names), published[f"blocking_decompose_by_{by}"]
        first = ", ".join(f"{name} {ours.get(name, 1):.4f} ({theirs[name]:.4f})" for name in list(theirs)[:4])
        same = next(iter(ours)) == next(iter(theirs))
        apart = max(abs(ours.get(name, 1.0) - theirs[name]) for name in theirs)
        print(f"  slowdown by {by:8} ours (theirs): {first}; {'same' if same else 'OTHER'} first, {apart:.4f} apart")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--only", nargs="*", default=["AR", "SE", "ST"])
    chosen = arguments.parse_args()
    for name in chosen.only:
        with tempfile.TemporaryDirectory() as made:
            published = json.loads((chosen.folder / f"result-{name}.json").read_text())
            compare(chosen.folder / f"trace-{name}.parquet", published, Path(made) / "run")


if __name__ == "__main__":
    main()
