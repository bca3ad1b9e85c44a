"""A job that is a thread: it writes steps, and traces of windows that it is asked for."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lostflops.collect.capture import frame_bytes, rank_file, trace_file
from lostflops.collect.window_plan import Requests


@dataclass
class Job:
    """Ranks that step every 20 ms; `refusing` ones skip every window."""

    folder: Path
    ranks: int = 2
    refusing: tuple[int, ...] = ()
    windows: list[Any] = field(default_factory=list)
    _written: dict[int, int] = field(default_factory=dict)

    def write(self, rank: int, *records: dict[str, Any]) -> None:
        first = self._written.get(rank, 0)
        self._written[rank] = first + len(records)
        with rank_file(self.folder, rank).open("ab") as file:
            file.write(frame_bytes(rank, "session", first, 0, list(records)))

    def start(self) -> None:
        (self.folder / "windows").mkdir(parents=True)
        for rank in range(self.ranks):
            self.write(rank, {"kind": "session", "local_rank": rank})

    def step(self, step: int) -> None:
        now = time.time_ns()
        for rank in range(self.ranks):
            self.write(rank, {"kind": "step", "step": step, "start": now - 20_000_000, "stop": now})

    @contextmanager
    def running(self) -> Iterator[None]:
        over = threading.Event()
        self.start()
        requests = Requests(self.folder)
        self.step(100)

        def train() -> None:
            step, asked = 101, None
            while not over.wait(0.02):
                self.step(step)
                asked = asked or requests.look()
                if asked is not None and step == asked.first + asked.steps:
                    self.answer(asked)
                step += 1

        thread = threading.Thread(target=train)
        thread.start()
        yield
        over.set()
        thread.join()

    def answer(self, request: Any) -> None:
        self.windows.append(request)
        for rank in range(self.ranks):
            if rank in self.refusing:
                state = {"kind": "window", "window": request.window, "state": "skipped", "reason": "learned too late"}
                self.write(rank, state)
            else:
                trace_file(self.folder, rank, request.window).write_bytes(b"trace")


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path / "run" / "capture")


def test_all_ranks_profile_steps_that_are_ahead(lostflops, job: Job) -> None:
    with job.running():
        before = time.monotonic()
        outcome = lostflops("snap", job.folder.parent, "--steps", "4", "--timeout", "60", "--json")
    assert outcome.code == 0, outcome.err
    answer = json.loads(outcome.out)
    assert answer["window"] == {"window": 1, "first": job.windows[0].first, "steps": 4, "traces": 2, "bytes": 10}
    assert job.windows[0].steps == 4
    # 3 s of steps of 20 ms are 150 steps.
    assert 100 + 150 < job.windows[0].first < 100 + 400
    assert time.monotonic() - before >= 3


def test_the_screen_says_which_steps_and_what_to_do_next(lostflops, job: Job) -> None:
    with job.running():
        outcome = lostflops("snap", job.folder.parent, "--ranks", "1")
    first = job.windows[0].first
    assert f"Steps {first} to {first + 2}: 1 trace." in outcome.out
    assert f"Next: lostflops ingest {job.folder} -o {job.folder.parent}" in outcome.out


def test_a_rank_that_refuses_is_named_and_not_waited_for(lostflops, job: Job) -> None:
    job.refusing = (1,)
    with job.running():
        outcome = lostflops("snap", job.folder.parent, "--json")
    assert json.loads(outcome.out)["missing"] == [{"rank": 1, "reason": "learned too late"}]


def test_a_job_that_stands_still_is_given_up_on(lostflops, job: Job) -> None:
    job.start()
    job.step(7)
    outcome = lostflops("snap", job.folder.parent, "--timeout", "1", "--json")
    assert outcome.code == 1
    reasons = [row["reason"] for row in json.loads(outcome.out)["missing"]]
    assert reasons == ["no trace before the timeout; the last finished step is 7"] * 2


def test_without_a_trace_there_is_nothing_to_ingest(lostflops, job: Job) -> None:
    job.start()
    job.step(7)
    outcome = lostflops("snap", job.folder.parent, "--timeout", "1")
    assert f"Next: lostflops watch {job.folder.parent}" in outcome.out


def test_without_a_capture(lostflops, tmp_path: Path) -> None:
    outcome = lostflops("snap", tmp_path)
    assert outcome.code == 2
    assert "has no capture; start the job with lostflops run" in outcome.err


def test_a_job_that_has_ended(lostflops, job: Job) -> None:
    job.start()
    job.step(7)
    for rank in range(2):
        job.write(rank, {"kind": "end", "reason": "exit"})
    outcome = lostflops("snap", job.folder.parent)
    assert outcome.code == 2
    assert "has ended" in outcome.err
    assert not list((job.folder / "windows").iterdir())


def test_a_job_that_has_not_begun(lostflops, job: Job) -> None:
    job.start()
    assert "no rank has finished a step" in lostflops("snap", job.folder.parent).err


@pytest.mark.parametrize(("ranks", "words"), [("5", "no such rank in this job: 5"), ("some", "--ranks must be all")])
def test_ranks_that_there_are_not(lostflops, job: Job, ranks: str, words: str) -> None:
    job.start()
    job.step(7)
    outcome = lostflops("snap", job.folder.parent, "--ranks", ranks)
    assert outcome.code == 2
    assert words in outcome.err


def test_a_command_in_an_error_can_be_pasted(lostflops, tmp_path: Path) -> None:
    """The name of the run has a space, so it is quoted."""
    run = tmp_path / "my run"
    for verb, words in (("snap", f"lostflops run --out '{run}'"), ("report", f"lostflops ingest TRACES -o '{run}'")):
        outcome = lostflops(verb, run)
        assert outcome.code != 0
        assert words in outcome.err.replace("\n", " ")
