"""The run of a job that still trains."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lostflops.capture import Frame, rank_file, reduced_form, trace_file
from lostflops.cli.early import EarlyIngest, Ranks
from lostflops.ingest import ingest
from tests.collect.jobs import PYTHON, finish, plain_environment, records, run_words
from tests.run_rows import rows_of

SECOND = 1_000_000_000


def said(rank: int, state: str, when: int, window: int = 0, session: str = "a") -> Frame:
    known = {"kind": "session", "host": f"node{rank}", "world_size": 2}
    told = {"kind": "window", "window": window, "state": state, "time": when * SECOND}
    return Frame(rank, session, 0, 0, [known, told])


def traces(*held: tuple[int, int, int]) -> dict[str, int]:
    """By rank, window and second."""
    return {f"rank-{rank:05d}.w{window:04d}.parts": when * SECOND for rank, window, when in held}


BOTH = traces((0, 0, 50), (1, 0, 51))


@pytest.mark.parametrize(
    ("frames", "held", "is_whole"),
    [
        ([said(0, "stopped", 40), said(1, "stopped", 41)], BOTH, True),
        ([said(0, "exported", 40), said(1, "stopped", 41)], BOTH, True),
        ([said(0, "stopped", 40), said(1, "failed", 41)], traces((0, 0, 50)), True),
        ([said(0, "stopped", 40), said(1, "stopped", 41)], traces((0, 0, 50)), False),
        ([said(0, "stopped", 40), said(1, "started", 41)], BOTH, False),
        ([said(0, "stopped", 40)], BOTH, False),
        ([said(0, "stopped", 40), said(1, "stopped", 60)], BOTH, False),
        ([said(0, "stopped", 40), said(1, "stopped", 41)], {}, False),
        ([said(0, "stopped", 40, 1), said(1, "started", 41, 1)], {**BOTH, **traces((0, 1, 60))}, False),
        ([said(0, "stopped", 40), said(1, "stopped", 41), said(1, "started", 60, 0, "b")], BOTH, False),
    ],
    ids=[
        "both",
        "one has said so",
        "one failed",
        "one is missing",
        "one has not stopped",
        "one is not known yet",
        "one is an older attempt's",
        "none",
        "a newer window has begun",
        "a rank began anew",
    ],
)
def test_a_window_is_whole_when_no_rank_is_still_to_write(
    frames: list[Frame], held: dict[str, int], is_whole: bool
) -> None:
    ranks = Ranks()
    ranks.take(frames)
    assert ranks.is_whole(held) is is_whole
    assert ranks.host == "node0"


class Started(EarlyIngest):
    """Counts what it would start."""

    started = 0

    def _start(self) -> Any:
        self.started += 1
        return subprocess.Popen(["sleep", "60"], start_new_session=True)


def test_a_process_is_started_for_new_traces_and_gone_when_the_job_is(tmp_path: Path) -> None:
    trace_file(tmp_path, 0, 0).touch()
    early = Started(tmp_path, tmp_path / "run", tmp_path)
    early.look()
    trace_file(tmp_path, 0, 1).touch()
    early.look()
    assert early.started == 0, "rank 0 is on another host"
    rank_file(tmp_path, 0).touch()
    early.look()
    assert early.started == 0, "they were there"
    reduced_form(trace_file(tmp_path, 0, 2)).touch()
    early.look()
    early.look()
    assert early.started == 1
    early.stop()
    trace_file(tmp_path, 0, 3).touch()
    early.look()
    assert early.started == 1, "the job has ended"


def test_a_lock_that_is_held_is_a_trace_to_come(tmp_path: Path) -> None:
    rank_file(tmp_path, 0).touch()
    early = Started(tmp_path, tmp_path / "run", tmp_path)
    with (tmp_path / f"{trace_file(tmp_path, 0, 0).name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        early.look()
    early.stop()
    assert early.started == 1


@pytest.mark.slow
def test_a_job_sees_its_own_run_and_it_is_that_of_its_raw_traces(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    run, root = tmp_path / "run", Path(__file__).resolve().parents[2]
    launch = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    words = [*run_words(run, "--steps", "8:2", "--keep-raw"), *launch, str(Path(__file__).with_name("early_job.py"))]
    environment = plain_environment(PYTHONPATH=f"{root / 'src'}:{root}")
    done = finish([*words, str(run)], environment, cwd=root)
    assert done.code == 0, done.stderr.decode()
    names = sorted(path.name for path in (run / "capture").glob("rank-*.w*"))
    assert names == [f"rank-0000{rank}.w0000.{form}" for rank in range(2) for form in ("json.gz", "parts")]
    told = [record for record in records(run / "capture", "window") if record["state"] == "exported"]
    assert [record["file"] for record in told] == names[1::2]
    shutil.copytree(run / "capture", tmp_path / "raw" / "capture")
    for path in (tmp_path / "raw" / "capture").glob("*.parts"):
        path.unlink()
    ingest([tmp_path / "raw" / "capture"], tmp_path / "raw", workers=1)
    assert rows_of(run) == rows_of(tmp_path / "raw")
    assert len(rows_of(run)["collectives"]) > 0
