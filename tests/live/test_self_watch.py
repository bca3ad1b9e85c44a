"""What a job that watches itself decides; a fake takes its requests and messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lostflops.core.errors import UsageError
from lostflops.live.board import Board
from lostflops.live.follow import Follower
from lostflops.live.self_watch import SelfWatch
from made_jobs import MS, MadeJob


@dataclass
class Fake:
    """Actions that only note what was asked of them."""

    written: set[int] = field(default_factory=set)
    is_dumped: bool = False
    is_gone: bool = False
    refusal: str = ""
    messages: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    asked: list[float] = field(default_factory=list)

    def ask_window(self, step_ns: float) -> int:
        if self.refusal:
            raise UsageError(self.refusal)
        self.asked.append(step_ns)
        return len(self.asked)

    def is_written(self, window: int) -> bool:
        return window in self.written

    def explain_window(self, window: int) -> str:
        return f"Window {window}: rank 1 is slow."

    def are_dumped(self) -> bool:
        return self.is_dumped

    def are_gone(self) -> bool:
        return self.is_gone

    def explain_hang(self) -> str:
        return "Rank 1 never arrived."

    def report(self, kind: str, text: str, facts: dict[str, Any]) -> None:
        self.messages.append((kind, text, facts))

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _, _ in self.messages]


@dataclass
class Watched:
    """A made job of one rank that is looked at every second."""

    folder: Path
    per_hour: int = 2
    now: float = 0.0
    number: int = 0

    def __post_init__(self) -> None:
        self.job = MadeJob(self.folder, world_size=1, step_ms=200)
        self.job.start()
        self.follower, self.board, self.fake = Follower(folder=self.folder, is_whole=True), Board(), Fake()
        self.watch = SelfWatch(self.board, self.fake, self.per_hour)

    def steps(self, count: int, milliseconds: int) -> None:
        for number in range(self.number, self.number + count):
            step = self.job.step(0, number)
            self.job.append(0, [{**step, "stop": step["start"] + milliseconds * MS}])
        self.number += count
        self.look(count * milliseconds / 1000)

    def look(self, seconds: float = 1.0) -> None:
        self.now += seconds
        self.board.take(self.follower.poll(), self.now)
        self.watch.look(self.board.settle(self.now), self.now)


def test_a_job_that_becomes_slower_gets_a_window_and_its_finding(tmp_path: Path) -> None:
    job = Watched(tmp_path)
    job.steps(400, 200)
    assert job.fake.messages == []
    job.steps(100, 300)
    ((kind, text, facts),) = job.fake.messages
    assert (kind, facts["window"], facts["step"]) == ("slower", 1, 400)
    assert text == (
        "Since about step 400, steps take 50% longer: 300 ms instead of 200 ms. Recording window 1 to find out why."
    )
    assert job.fake.asked == [300 * MS]
    assert [step["step"] for step in facts["last_steps"]] == list(range(436, 500))
    job.look()
    assert len(job.fake.messages) == 1
    job.fake.written.add(1)
    job.look()
    job.look()
    assert job.fake.kinds == ["slower", "finding"]


def test_a_window_that_never_comes_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    job = Watched(tmp_path)
    job.steps(400, 200)
    job.steps(100, 300)
    job.look(901)
    assert "finding" in job.fake.kinds


def test_no_more_windows_an_hour_than_allowed_but_every_change_is_reported(tmp_path: Path) -> None:
    job = Watched(tmp_path, per_hour=1)
    job.steps(400, 200)
    job.steps(400, 300)
    job.steps(400, 500)
    assert len(job.fake.asked) == 1
    assert job.fake.kinds == ["slower", "slower"]
    assert job.fake.messages[1][1].endswith("No window is recorded: the limit is 1 window per hour.")
    job.look(3601)
    job.steps(400, 800)
    assert len(job.fake.asked) == 2


def test_without_windows_changes_are_still_reported(tmp_path: Path) -> None:
    job = Watched(tmp_path, per_hour=0)
    job.steps(400, 200)
    job.steps(100, 300)
    assert (job.fake.kinds, job.fake.asked) == (["slower"], [])


def test_a_refused_window_says_why_and_does_not_count(tmp_path: Path) -> None:
    job = Watched(tmp_path, per_hour=1)
    job.fake.refusal = "the job has ended"
    job.steps(400, 200)
    job.steps(400, 300)
    assert job.fake.messages[0][1].endswith("No window is recorded: the job has ended.")
    job.fake.refusal = ""
    job.steps(400, 500)
    assert len(job.fake.asked) == 1


@pytest.mark.parametrize("is_dumped", [True, False])
def test_a_hang_is_explained_once_when_ranks_have_said_where_they_are(tmp_path: Path, is_dumped: bool) -> None:
    job = Watched(tmp_path)
    job.steps(50, 200)
    job.look(59)
    job.fake.is_dumped = is_dumped
    assert job.fake.messages == []
    job.look(2 if is_dumped else 22)
    for _ in range(5):
        job.look(30)
    ((kind, text, _),) = job.fake.messages
    seconds = "61.0 s" if is_dumped else "81.0 s"
    assert (kind, text) == ("hang", f"No step has ended for {seconds}. Rank 1 never arrived.")
    job.steps(1, 200)
    assert job.fake.messages[1][:2] == ("moving", "Steps end again.")


def test_a_pause_of_a_minute_that_ends_is_not_reported(tmp_path: Path) -> None:
    job = Watched(tmp_path)
    job.fake.is_dumped = True
    job.steps(50, 200)
    for _ in range(55):
        job.look()
    job.steps(50, 200)
    for _ in range(55):
        job.look()
    assert job.fake.messages == []


def test_a_pause_that_the_job_had_before_is_not_reported(tmp_path: Path) -> None:
    """Each epoch ends with 100 s of something that the collector does not know."""
    job = Watched(tmp_path)
    job.fake.is_dumped = True
    job.steps(50, 200)
    job.steps(1, 100_000)
    job.steps(50, 200)
    job.look(190)
    assert job.fake.messages == []
    job.look(20)
    assert job.fake.kinds == ["hang"]


@pytest.mark.parametrize("within", ["saving", "evaluating"])
def test_a_checkpoint_or_an_evaluation_may_take_half_an_hour(tmp_path: Path, within: str) -> None:
    job = Watched(tmp_path)
    job.fake.is_dumped = True
    job.steps(50, 200)
    stall = {"step": 50, "stack": ["save train.py:7"], "within": within}
    job.job.append(0, [{"kind": "job", "key": "stall", "value": stall}])
    job.look(12)
    job.look(1780)
    assert job.fake.messages == []
    job.look(30)
    assert job.fake.kinds == ["hang"]


def test_a_hang_after_a_checkpoint_is_reported_like_any_other(tmp_path: Path) -> None:
    job = Watched(tmp_path)
    job.fake.is_dumped = True
    job.steps(50, 200)
    job.job.append(0, [{"kind": "job", "key": "stall", "value": {"stack": ["x"], "within": "saving"}}])
    job.steps(50, 200)
    job.look(62)
    assert job.fake.kinds == ["hang"]


def test_a_restart_begins_anew(tmp_path: Path) -> None:
    job = Watched(tmp_path)
    job.steps(400, 200)
    job.steps(100, 300)
    again = MadeJob(tmp_path, world_size=1, attempt=1, step_ms=200, begin=job.job.begin + 10**13)
    again.start()
    again.run(0, 300)
    job.fake.written.add(1)
    job.look()
    assert job.fake.kinds == ["slower"]
    job.fake.is_dumped = True
    job.look(62)
    assert job.fake.kinds == ["slower", "hang"]
    assert job.fake.messages[1][2]["attempt"] == 1


def test_a_job_that_hangs_in_its_first_step_is_reported_after_half_an_hour(tmp_path: Path) -> None:
    """Until then it may compile."""
    job = Watched(tmp_path)
    job.fake.is_dumped = True
    job.look()
    job.look(1790)
    assert job.fake.messages == []
    job.look(20)
    assert job.fake.kinds == ["hang"]


def test_a_job_that_was_killed_and_may_start_again_does_not_hang(tmp_path: Path) -> None:
    """A launcher that restarts a job may need minutes until the next first step."""
    job = Watched(tmp_path)
    job.steps(50, 200)
    job.fake.is_gone = True
    for _ in range(29):
        job.look(60)
    assert job.fake.messages == []
    job.look(100)
    assert job.fake.kinds == ["hang"]


def test_a_job_that_has_ended_does_not_hang(tmp_path: Path) -> None:
    job = Watched(tmp_path)
    job.steps(50, 200)
    job.job.end()
    for _ in range(10):
        job.look(600)
    assert job.fake.messages == []
