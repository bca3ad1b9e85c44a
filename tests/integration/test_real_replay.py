"""Real jobs over gloo, recorded with `lostflops run`: their graph replays what was recorded, and moves as it should."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from lostflops.predict.graph.build import build
from lostflops.predict.graph.editing import retime_graph
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import TaskGraph, TaskKind
from lostflops.store.run import Run

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

JOB = Path(__file__).parents[2] / "benchmarks" / "replay_gloo_job.py"
LONGEST = 240
"""Seconds; on a machine with nothing else to do it is a twentieth."""
RECORD = ("-m", "lostflops", "run", "--steps", "3:4", "--out")
LAUNCH = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def recorded(job: str, folder: Path) -> TaskGraph:
    words = [sys.executable, *RECORD, str(folder), "--", sys.executable, *LAUNCH, str(JOB), job, "--steps", "8"]
    source = str(Path(__file__).parents[2] / "src")
    subprocess.run(
        words,
        check=True,
        capture_output=True,
        timeout=LONGEST,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": source},
    )
    with Run.open(folder) as run:
        return build(run)


@pytest.mark.parametrize(
    "job",
    [
        pytest.param("manual", marks=pytest.mark.slow),
        pytest.param("ddp", marks=pytest.mark.slow),
        pytest.param("pipeline", marks=pytest.mark.slow),
        pytest.param("fsdp2", marks=pytest.mark.slow),
        pytest.param("tensor", marks=pytest.mark.slow),
    ],
)
def test_a_real_job_replays_as_it_was_recorded(job, tmp_path):
    graph = recorded(job, tmp_path / "run")
    done, step = replay(graph), graph.steps.measured.mean()
    assert len(graph.steps) == 8, "four steps of two ranks"
    assert graph.meetings.whole.all()
    assert done.mean_step == pytest.approx(step, rel=0.02)
    assert done.step_times == pytest.approx(graph.steps.measured, rel=0.05)
    assert np.median(np.abs(done.start - graph.measured.start)) <= 0.02 * step

    twice = replay(retime_graph(graph, transfer=graph.meetings.transfer * 2)).mean_step - done.mean_step
    if job == "manual":
        moved = graph.meetings.transfer.sum() / 4
        assert twice == pytest.approx(moved, rel=0.05), "nothing hides what is reduced when all else is done"
    computing = np.where(graph.tasks.kind == TaskKind.KERNEL, graph.tasks.duration * 2, graph.tasks.duration)
    assert replay(retime_graph(graph, duration=computing)).mean_step > 1.3 * step
