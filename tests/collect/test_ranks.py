"""Ranks among themselves: we enqueue nothing, wait for nobody, and outlive restarts."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lostflops.collect.capture import rank_file, read_frames
from tests.collect.jobs import PYTHON, captures, finish, frames_of, plain_environment, recorded, records

pytest.importorskip("torch")

from tests.collect import zoo

ROOT = Path(__file__).resolve().parents[2]
WINDOW = "20:3"
MOMENTS = {"before": 10, "warm-up": 19, "first step": 20, "in": 21, "end": 23, "after": 24}
ENDS = [(how, moment) for how in ("kill", "stop", "exit") for moment in MOMENTS]
QUICK = {("kill", "in")}
LEAVING = 6
"""Seconds that an exit may take longer; the disk gets half of them."""


def run_both(folder: Path, how: str, step: int) -> tuple[dict[str, Any], dict[str, Any]]:
    plain, ours = folder / "plain", folder / "ours"
    environment = plain_environment(TORCH_FR_BUFFER_SIZE="2000")
    jobs = {plain: environment, ours: recorded(ours / "capture", environment, steps=WINDOW)}
    for out in jobs:
        out.mkdir()
    with ThreadPoolExecutor() as pool:
        words = [PYTHON, "-m", "tests.collect.ranks_job"]
        done = list(pool.map(lambda out: finish([*words, str(out), how, str(step)], jobs[out], cwd=ROOT), jobs))
    assert [one.code for one in done] == [0, 0], done
    return json.loads((plain / "found").read_text()), json.loads((ours / "found").read_text())


def test_nothing_is_enqueued_by_us(tmp_path: Path) -> None:
    plain, ours = run_both(tmp_path, "none", 0)
    assert ours["told"]["enqueued"] == plain["told"]["enqueued"]
    assert sum(plain["told"]["enqueued"].values()) >= 40
    told = [entry for record in records(tmp_path / "ours" / "capture", "collectives") for entry in record["entries"]]
    assert len(told) == 2 * sum(plain["told"]["enqueued"].values())


@pytest.mark.parametrize(
    ("how", "moment"), [pytest.param(*end, marks=() if end in QUICK else pytest.mark.slow) for end in ENDS]
)
def test_a_rank_that_stops_leaves_the_other_as_it_would_without_us(tmp_path: Path, how: str, moment: str) -> None:
    plain, ours = run_both(tmp_path, how, MOMENTS[moment])
    assert (ours["statuses"], ours["told"]) == (plain["statuses"], plain["told"])
    assert plain["told"]["error"]
    assert ours["leaving"] < plain["leaving"] + LEAVING
    steps = {record["step"] for record in records(tmp_path / "ours" / "capture", "step")}
    assert max(steps) == MOMENTS[moment] - 1


CRASHES = """
import os, sys, time
sys.argv = ["train", os.environ["OUT"], "plain"]
import torch.distributed as dist
from tests.collect import zoo
dist.init_process_group("gloo")
for step, _ in enumerate(zoo.ddp()):
    if step == 30 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and dist.get_rank() == 1:
        time.sleep(2)  # its first records are on disk by then
        os.kill(os.getpid(), 9)
dist.destroy_process_group()
"""


def sessions_of(path: Path) -> list[str]:
    return list(dict.fromkeys(frame.session for frame in frames_of(path)))


@pytest.mark.slow
def test_a_restarted_job_goes_on_in_the_same_files(tmp_path: Path) -> None:
    (tmp_path / "crash.py").write_text(CRASHES)
    words = [
        PYTHON, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1",
        "--master-port", "0", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", str(tmp_path / "crash.py"),
    ]  # fmt: skip
    python_path = ":".join([str(ROOT / "src"), str(ROOT)])
    for attempt in range(3):
        capture = tmp_path / f"capture{attempt}"
        environment = recorded(capture, plain_environment(OUT=str(tmp_path), PYTHONPATH=python_path), steps=WINDOW)
        done = finish(words, environment)
        # Gloo of the restarted ranks may meet addresses of the first ones, recorded or not.
        if b"connectFullMesh failed" not in done.stderr:
            break
    assert done.code == 0, done.stderr.decode()
    assert [path.name for path in captures(capture)] == ["rank-00000.capture", "rank-00001.capture"]
    for path in captures(capture):
        assert len(sessions_of(path)) == 2
    restarts = sorted((session["rank"], session["restart"]) for session in records(capture, "session"))
    assert restarts == [(0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.slow
def test_attempts_of_other_sizes_stand_behind_each_other(tmp_path: Path) -> None:
    """Two ranks, then one, then two, into one capture; a frame that was torn in between is passed over."""
    capture = tmp_path / "capture"
    for attempt, way in enumerate(("ddp", "plain", "ddp")):
        out = tmp_path / str(attempt)
        out.mkdir()
        done = finish(
            [sys.executable, str(zoo.__file__), str(out), way], recorded(capture, plain_environment(ZOO_PAUSE="0.04"))
        )
        assert done.code == 0, done.stderr.decode()
        with rank_file(capture, 0).open("r+b") as file:
            whole = file.read()
            file.truncate(len(whole) - 7)
    sizes = [session["world_size"] for session in records(capture, "session") if session["rank"] == 0]
    assert sizes == [2, 1, 2]
    assert len(sessions_of(rank_file(capture, 1))) == 2
    assert read_frames(rank_file(capture, 0))[1] == 3
    assert len([step for step in records(capture, "step") if step["step"] == 0]) == 5
