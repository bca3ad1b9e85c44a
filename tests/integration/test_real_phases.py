"""Two real ranks that roll out, score and train: the ledger has their phases, as the job itself timed them."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from lostflops.explain.analyze.report import report
from lostflops.store.run import Run
from tests.integration.phases_job import NAMES

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")]

LONGEST = 400
CLOSE = 8_000_000
"""Nanoseconds in all steps of a rank: an annotation begins before the job reads its clock, and ends after."""


def record(folder: Path) -> Path:
    words = [sys.executable, "-m", "lostflops", "run", "--steps", "3:4", "--out", str(folder / "run"), "--"]
    words += [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    words += [str(Path(__file__).with_name("phases_job.py")), str(folder)]
    source = str(Path(__file__).parents[2] / "src")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": source}
    subprocess.run(words, check=True, capture_output=True, timeout=LONGEST, env=environment)
    return folder / "run"


def measure(folder: Path, rank: int, spans: list[tuple[int, int]]) -> dict[str, int]:
    """Return how long the rank was in each phase inside these spans, by its own clock."""
    found = dict.fromkeys(NAMES, 0)
    for name, start, stop in json.loads((folder / f"phases{rank}.json").read_text()):
        found[name] += sum(max(0, min(stop, until) - max(start, since)) for since, until in spans)
    return found


def test_phases_last_as_long_as_the_job_says(tmp_path: Path) -> None:
    with Run.open(record(tmp_path)) as run:
        answer = report(run).to_json()
        for rank in (0, 1):
            spans = run.rows(f"select start, stop from spans where rank = {rank}")
            query = f"select name, sum(ns)::bigint from ledger where rank = {rank} and split = 'job_phase' group by 1"
            phases = dict(run.rows(query))
            assert sum(phases.values()) == sum(stop - start for start, stop in spans)
            expected = measure(tmp_path, rank, spans)
            assert min(expected.values()) > 0
            assert {name: phases[name] for name in NAMES} == pytest.approx(expected, abs=CLOSE, rel=0.03)
    shown = {row["name"]: row for row in answer["job_phases"]}
    assert sum(row["ns"] for row in shown.values()) == answer["ledger"]["total_ns"]
    assert shown["rollout"]["compute"] > 0.3
    assert shown["reward"]["lines"]["compute"] == 0
    assert shown["train"]["lines"]["comm.transfer"] + shown["train"]["lines"]["comm.wait"] > 0
