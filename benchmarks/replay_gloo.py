"""How well the graph of a job over gloo replays its recording, and whether it moves with what is changed in it.

    python benchmarks/replay_gloo.py --json numbers.json

Each job of benchmarks/replay_gloo_job.py is recorded with `lostflops run`, built as a graph, and replayed unedited,
with all transfers twice and half as long, and with batches that are there at once. Exit code 1 means that a replay
misses the limits: mean steps within 2% in the median and 5% at worst, starts of tasks within 2% of a step in the
median. `own` is how much shorter steps are without what members of collectives stay beyond the transfer, which no
change of the network touches. With `--keep FOLDER` runs stay there, and those that are there already are not recorded
again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np

from lostflops.predict.graph.build import build
from lostflops.predict.graph.editing import retime_graph
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import TaskKind
from lostflops.store.run import Run

JOBS = (
    ("ddp", 2),
    ("ddp", 4),
    ("ddp_network", 2),
    ("ddp_compute", 2),
    ("straggler", 2),
    ("loader_0", 2),
    ("loader_2", 2),
    ("loader_2_hidden", 2),
    ("fsdp2", 2),
    ("fsdp2", 4),
    ("zero", 2),
    ("tensor", 2),
    ("pipeline", 2),
    ("pipeline", 4),
    ("manual", 2),
)
WINDOW, SECONDS = "6:6", 300
TYPICAL, WORST, STARTS = 0.02, 0.05, 0.02


@dataclass(frozen=True, slots=True)
class Row:
    """`error` is of the mean step, `worst_step` of any single one, `starts` the median of all tasks in steps. The rest
    is how much the mean step changes with other transfers or batches that are there at once."""

    job: str
    ranks: int
    tasks: int
    meetings: int
    step_ms: float
    error: float
    worst_step: float
    starts: float
    twice: float
    half: float
    loaded: float
    own: float


def record(job: str, ranks: int, out: Path) -> None:
    script = str(Path(__file__).with_name("replay_gloo_job.py"))
    launched = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), script]
    words = [sys.executable, "-m", "lostflops", "run", "--steps", WINDOW, "--out", str(out), "--", *launched, job]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(words, check=True, capture_output=True, timeout=SECONDS, env=environment)


def replayed(job: str, ranks: int, folder: Path) -> Row:
    with Run.open(folder) as run:
        graph = build(run)
    done, tasks, transfer = replay(graph), graph.tasks, graph.meetings.transfer
    step, known = graph.steps.measured.mean(), graph.measured.start >= 0
    loads = np.isin(tasks.kind, (TaskKind.DATA, TaskKind.LOAD))

    def change(**times: np.ndarray) -> float:
        return replay(retime_graph(graph, **times)).mean_step / done.mean_step - 1

    return Row(
        job,
        ranks,
        len(tasks),
        len(graph.meetings),
        step / 1e6,
        done.mean_step / step - 1,
        float(np.abs(done.step_times / graph.steps.measured - 1).max()),
        float(np.median(np.abs(done.start - graph.measured.start)[known]) / step),
        change(transfer=transfer * 2),
        change(transfer=transfer // 2),
        change(duration=np.where(loads, 0, tasks.duration)),
        change(duration=np.where(tasks.kind == TaskKind.COMM, 0, tasks.duration)),
    )


def within(rows: list[Row]) -> bool:
    errors = [abs(row.error) for row in rows]
    return median(errors) <= TYPICAL and max(errors) <= WORST and max(row.starts for row in rows) <= STARTS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", nargs="*", help="some of them, as ddp:2")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    rows = []
    print(f"{'job':16} ranks  tasks   step ms    error worst step  starts    x2   x0.5  loaded    own")
    with tempfile.TemporaryDirectory() as made:
        for job, ranks in JOBS:
            if asked.jobs and f"{job}:{ranks}" not in asked.jobs:
                continue
            folder = (asked.keep or Path(made)) / f"{job}_{ranks}"
            if not (folder / "run.json").exists():
                record(job, ranks, folder)
            row = replayed(job, ranks, folder)
            print(
                f"{job:16} {ranks:5} {row.tasks:6} {row.step_ms:9.1f} {row.error:+8.2%} {row.worst_step:10.2%} "
                f"{row.starts:7.2%} {row.twice:+6.1%} {row.half:+6.1%} {row.loaded:+6.1%} {row.own:+6.1%}",
                flush=True,
            )
            rows.append(row)
    if asked.json:
        machine = {"cpu": platform.processor(), "cores": os.cpu_count(), "python": platform.python_version()}
        asked.json.write_text(json.dumps({"machine": machine, "rows": [asdict(row) for row in rows]}, indent=2))
    sys.exit(0 if within(rows) else 1)


if __name__ == "__main__":
    main()
