"""Ranks whose step does not end say where they are; a step that ends after all takes it back."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from collect.captured import records
from collect.jobs import PYTHON, plain_environment, run_words, started
from lostflops.api import hang
from lostflops.collect.capture import FOLDER, flight_file
from lostflops.collect.interludes import Interludes
from lostflops.collect.stalls import Stalls

JOB = """
import sys, threading, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def wait_for_lock(seconds):
    threading.Event().wait(seconds)

dist.init_process_group("gloo")
net = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(12):
    if step == 6 and dist.get_rank() == 1:
        wait_for_lock(float(sys.argv[1]))
    net(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print("trained", flush=True)
"""
PATIENCE = 120
MS = 1_000_000


class Rank:
    """As much of a recorder as the look at a stalled step needs."""

    def __init__(self, folder: Path) -> None:
        self.settings = SimpleNamespace(folder=folder)
        self.rank = 3
        self.clock = SimpleNamespace(step=SimpleNamespace(number=0, start=time.monotonic_ns()))
        self.interludes = Interludes()
        self.put_values: list[dict[str, Any]] = []

    def wall(self) -> int:
        return time.time_ns()

    def put(self, record: dict[str, Any]) -> None:
        self.put_values.append(record["value"])

    def begin_step(self, number: int, ago: int = 0) -> None:
        self.clock.step = SimpleNamespace(number=number, start=time.monotonic_ns() - ago)


def test_a_rank_looks_after_eight_seconds_and_then_ever_more_rarely(tmp_path: Path) -> None:
    rank = Rank(tmp_path)
    stalls = Stalls(rank)
    looks = []
    for second in range(70):
        rank.begin_step(5, ago=second * 1000 * MS)
        looks += [second] if stalls.is_due() else []
    assert looks == [8, 16, 32, 64]


def test_long_steps_are_no_stall_until_three_times_as_long(tmp_path: Path) -> None:
    rank = Rank(tmp_path)
    stalls = Stalls(rank)
    stalls.step_ended(20_000 * MS)
    rank.begin_step(1, ago=59_000 * MS)
    assert not stalls.is_due()
    rank.begin_step(1, ago=61_000 * MS)
    assert stalls.is_due()


def test_a_rank_says_if_it_saves_or_evaluates(tmp_path: Path) -> None:
    rank = Rank(tmp_path)
    stalls = Stalls(rank)
    stalls.record(threading.get_ident())
    rank.interludes.evaluation_begins(0)
    stalls.record(threading.get_ident())
    rank.interludes.save_begins(0)
    stalls.record(threading.get_ident())
    rank.interludes.save_ended(5)
    rank.interludes.take()
    stalls.record(threading.get_ident())
    assert [value["within"] for value in rank.put_values] == [None, "evaluating", "saving", None]


def test_what_was_written_is_taken_back_when_the_step_ends(tmp_path: Path) -> None:
    rank = Rank(tmp_path)
    stalls = Stalls(rank)
    stalls.record(threading.get_ident())
    assert rank.put_values[0]["stack"][-1].startswith("Stalls.record ")
    assert "test_stalls.py" in rank.put_values[0]["stack"][-2]
    assert flight_file(tmp_path, 3).exists()
    rank.begin_step(1)
    assert not stalls.is_due()
    assert rank.put_values[1]["stack"] == []
    assert list(tmp_path.iterdir()) == []


def test_the_dump_of_an_earlier_attempt_is_removed(tmp_path: Path) -> None:
    flight_file(tmp_path, 3).write_bytes(b"old")
    flight_file(tmp_path, 4).write_bytes(b"of another rank")
    Stalls(Rank(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["flight_rank_4"]


def test_a_program_that_ends_by_itself_takes_it_back_and_one_that_fails_does_not(tmp_path: Path) -> None:
    for fails in (True, False):
        stalls = Stalls(Rank(tmp_path))
        stalls.record(threading.get_ident())
        if fails:
            with suppress(RuntimeError):
                try:
                    raise RuntimeError("timeout")
                finally:
                    stalls.close()
        else:
            stalls.close()
        assert flight_file(tmp_path, 3).exists() == fails


def test_a_disk_that_is_full_stops_nothing(tmp_path: Path) -> None:
    """The collector counts the error; the stack is in the records all the same."""
    rank = Rank(tmp_path / "missing")
    stalls = Stalls(rank)
    with suppress(OSError):
        stalls.record(threading.get_ident())
    assert rank.put_values[0]["stack"]


def words(tmp_path: Path, seconds: float) -> list[str]:
    script = tmp_path / "job.py"
    script.write_text(JOB)
    launch = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    return [*run_words(tmp_path / "run", "--steps", "none"), *launch, str(seconds)]


def wait_for(condition: object) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < until
        time.sleep(0.2)


@pytest.mark.slow
def test_a_job_that_hangs_explains_itself_while_it_runs_and_after_it_was_killed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    dumps = [flight_file(run / FOLDER, rank) for rank in (0, 1)]
    with started(words(tmp_path, 3600), plain_environment()) as process:
        wait_for(lambda: all(dump.exists() for dump in dumps))
        wait_for((run / "anomalies" / "log.jsonl").exists)
        alive = hang(str(run))
        os.kill(process.pid, signal.SIGTERM)
        process.wait(PATIENCE)
    for answer in (alive, hang(str(run))):
        assert answer.verdict.startswith("Rank 1 never arrived at all_reduce"), answer.verdict
        assert "job.py:7 (wait_for_lock)" in answer.verdict
        (culprit,) = answer.to_json()["culprits"]
        assert culprit["line"] == "job.py:7 (wait_for_lock)"
        assert culprit["stack"].startswith("<module> job.py:")
    log = (run / "anomalies" / "log.jsonl").read_text()
    assert log.count('"kind": "hang"') == 1
    assert "wait_for_lock" in log


@pytest.mark.slow
def test_a_step_that_ends_after_all_leaves_nothing(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with started(words(tmp_path, 12), plain_environment()) as process:
        wait_for(flight_file(run / FOLDER, 1).exists)
        assert pickle.loads(flight_file(run / FOLDER, 1).read_bytes())["entries"]
        assert process.wait(PATIENCE) == 0
    assert list((run / FOLDER).glob("flight_rank_*")) == []
    for rank in (0, 1):
        stalls = [record["value"]["stack"] for record in records(run, "job")[rank] if record["key"] == "stall"]
        assert len(stalls) == 2
        assert stalls[0]
        assert stalls[1] == []
