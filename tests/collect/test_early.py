"""The run of a job that still trains."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lostflops.cli import early
from lostflops.cli.early import EarlyIngest, Ranks
from lostflops.collect.capture import Frame, rank_file, reduced_form, trace_file
from lostflops.ingest import ingest
from tests.collect.jobs import PYTHON, finish, plain_environment, records, run_words
from tests.made_captures import frames, session, write, write_window
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
        ([said(0, "stopped", 40), said(0, "exported", 55), said(1, "stopped", 41)], BOTH, True),
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
        "one has said so late",
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


@pytest.fixture(autouse=True)
def looks_as_often_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early, "_MOST_LOOKING", 1e9)


class Started(EarlyIngest):
    """Counts what it would start."""

    started = 0

    def _start(self) -> Any:
        self.started += 1
        return subprocess.Popen(["sleep", "60"], start_new_session=True)


def test_a_process_is_started_for_new_traces_and_gone_when_the_job_is(tmp_path: Path) -> None:
    trace_file(tmp_path, 0, 0).touch()
    ingesting = Started(tmp_path, tmp_path / "run", tmp_path)
    ingesting.look()
    trace_file(tmp_path, 0, 1).touch()
    ingesting.look()
    assert ingesting.started == 0, "rank 0 is on another host"
    rank_file(tmp_path, 0).touch()
    ingesting.look()
    assert ingesting.started == 0, "they were there"
    reduced_form(trace_file(tmp_path, 0, 2)).touch()
    ingesting.look()
    ingesting.look()
    assert ingesting.started == 1
    ingesting.stop()
    trace_file(tmp_path, 0, 3).touch()
    ingesting.look()
    assert ingesting.started == 1, "the job has ended"


class Taking(EarlyIngest):
    """Its process says what it takes, and ends when there is `over`."""

    started = 0

    def _start(self) -> Any:
        self.started += 1
        program = "import sys, time, pathlib; from lostflops.cli import early; capture = pathlib.Path(sys.argv[1]);"
        program += "print(early._mark(early.traces_in(capture)), flush=True); (capture / 'begun').touch();"
        program += "exec('while not (capture / \\'over\\').exists(): time.sleep(0.01)')"
        path = {"PYTHONPATH": str(Path(early.__file__).parents[2])}
        words = [PYTHON, "-c", program, str(self._capture)]
        return subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True, env=path)


def look_until(early: EarlyIngest, is_reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_reached() and time.monotonic() < deadline:
        early.look()
        time.sleep(0.02)
    assert is_reached()


def test_what_is_written_during_an_ingest_is_ingested_next(tmp_path: Path) -> None:
    taking = Taking(tmp_path, tmp_path / "run", tmp_path)
    rank_file(tmp_path, 0).touch()
    taking.look()
    trace_file(tmp_path, 0, 0).touch()
    look_until(taking, (tmp_path / "begun").exists)
    trace_file(tmp_path, 0, 1).touch()
    (tmp_path / "over").touch()
    look_until(taking, lambda: taking.started == 2)
    look_until(taking, lambda: taking._process is None)
    for _ in range(3):
        time.sleep(0.02)
        taking.look()
    assert taking.started == 2, "all of it is in the run"
    taking.stop()


def test_the_end_of_a_job_does_not_wait_for_a_look_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early, "_PATIENCE", 0.1)
    started = Started(tmp_path, tmp_path / "run", tmp_path)
    started._process = started._start()
    with started._lock:
        started.stop()
    assert started._process.poll() is not None


_PARENT = """
import os, signal, subprocess, sys, threading
from pathlib import Path
from lostflops.cli.early import EarlyIngest
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
folder = Path(sys.argv[1])
print(EarlyIngest(folder, folder, folder)._start().pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("ends", ["its parent is killed", "it is told to"])
def test_the_process_ends(tmp_path: Path, ends: str) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit('a module of the job')")
    environment = plain_environment(PYTHONPATH=str(Path(early.__file__).parents[2]))
    words = [PYTHON, "-P", "-c", _PARENT, str(tmp_path)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=tmp_path
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        state = Path(f"/proc/{pid}/status")
        until(lambda: "SigBlk:\t0000000000000000" in state.read_text() and _is_idle(pid))
        if ends == "it is told to":
            os.kill(pid, signal.SIGTERM)
            until(lambda: "zombie" in state.read_text())
        parent.kill()
    until(lambda: not state.exists())


def test_a_process_whose_parent_is_gone_does_not_begin(tmp_path: Path) -> None:
    where, another = str(Path(early.__file__).parents[2]), "1"
    words = [PYTHON, "-P", "-c", early._PROGRAM, where, another, *map(str, [tmp_path] * 3)]
    done = finish(words, plain_environment())
    assert (done.code, done.stderr) == (1, b"the parent process has already ended\n")


@pytest.mark.slow
def test_its_lock_tells_that_it_is_the_jobs_own(tmp_path: Path) -> None:
    """Who meets it waits for it."""
    capture, run = tmp_path / "run" / "capture", tmp_path / "run"
    trace = write_window(capture, 0, 0, [])
    stopped = {"kind": "window", "window": 0, "state": "stopped", "time": trace.stat().st_mtime_ns}
    write(capture, 0, frames(0, "a", [session(0, 1, host=socket.gethostname()), stopped]))
    process = EarlyIngest(capture, run, capture)._start()
    assert process.wait(60) == 0
    early._taken_by(process)
    assert (run / ".lock").read_text() == f"early {process.pid} {socket.gethostname()}"
    assert (run / "run.json").exists()


def _is_idle(pid: int) -> bool:
    return os.sched_getscheduler(pid) == os.SCHED_IDLE and os.getpriority(os.PRIO_PROCESS, pid) >= 0


def until(is_reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_lock_that_is_held_is_a_trace_to_come(tmp_path: Path) -> None:
    rank_file(tmp_path, 0).touch()
    ingesting = Started(tmp_path, tmp_path / "run", tmp_path)
    with (tmp_path / f"{trace_file(tmp_path, 0, 0).name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ingesting.look()
    ingesting.stop()
    assert ingesting.started == 1


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
