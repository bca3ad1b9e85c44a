"""Ingests that meet: one of the job itself is waited for, another is told of at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.conftest import Call

from lostflops.cli import ingesting
from lostflops.cli.verbs.run import ingest_capture
from lostflops.store.commit import RunWriter
from lostflops.store.run import Run
from made_captures import write_window

STEP = [{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": 1, "tid": 1, "ts": 10, "dur": 90}]


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    write_window(tmp_path / "run" / "capture", 0, 0, STEP)
    return tmp_path / "run" / "capture"


@contextmanager
def held(run: Path, seconds: float, *, is_early: bool) -> Iterator[None]:
    """Somebody else writes for a while, which begins before and need not be over behind."""
    begun = threading.Event()

    def hold() -> None:
        with RunWriter(run, is_early=is_early):
            begun.set()
            time.sleep(seconds)

    thread = threading.Thread(target=hold)
    thread.start()
    begun.wait()
    yield
    thread.join()


def test_an_ingest_waits_for_that_of_the_job_itself(lostflops: Call, capture: Path) -> None:
    with held(capture.parent, 0.5, is_early=True):
        done = lostflops("ingest", capture, "-o", capture.parent, "--workers", "1")
    assert done.code == 0, done.err
    assert done.err.count("waiting up to 60 s: the job of ") == 1
    with Run.open(capture.parent) as run:
        assert run.ranks == (0,)


def test_it_does_not_wait_forever(lostflops: Call, capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingesting, "_PATIENCE", 0.1)
    with held(capture.parent, 1, is_early=True):
        done = lostflops("ingest", capture, "-o", capture.parent, "--workers", "1")
    assert done.code == 5
    assert "is adding its newest window to the run (process " in done.err.splitlines()[-1]


def test_who_started_two_ingests_is_told_at_once(lostflops: Call, capture: Path) -> None:
    with held(capture.parent, 0.5, is_early=False):
        done = lostflops("ingest", capture, "-o", capture.parent)
    assert done.code == 5
    assert "waiting" not in done.err


def test_the_end_of_a_job_waits_for_whoever_writes(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with held(capture.parent, 0.5, is_early=False):
        ingest_capture(capture, capture.parent)
    assert capsys.readouterr().err.count("waiting up to 60 s: another ingest ") == 1
    with Run.open(capture.parent) as run:
        assert run.ranks == (0,)
