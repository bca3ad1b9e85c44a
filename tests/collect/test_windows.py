"""Windows on a real training loop: which steps they hold, and that nothing goes wrong around them."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from lostflops.collect import export, window_length
from lostflops.collect.capture import WindowRequest, request_file, trace_file
from lostflops.collect.gather import Gatherer
from lostflops.collect.sampler import Sampler
from lostflops.collect.window_plan import publish
from tests.collect.fake_recorder import FakeRecorder

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
if find_spec("torch") is not None:
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    import torch

    from lostflops.collect.other_profilers import others
    from lostflops.collect.profiling import is_profiler_enabled
    from lostflops.collect.windows import Windows


class Training:
    """A loop that calls `edge` between steps, as the recorder does."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Sequential(torch.nn.Linear(8, 2)))
        self.recorder = FakeRecorder(folder, [self.model], **settings)
        self.windows = Windows(self.recorder)
        self.folder, self.step = folder, 0

    def run(self, until: int, inside: Any = lambda step: None) -> Training:
        while self.step < until:
            inside(self.step)
            self.model(torch.ones(4, 8)).sum().backward()
            self.step += 1
            self.windows.edge(self.step)
        return self

    def trace(self, window: int = 0) -> dict[str, Any]:
        path = trace_file(self.folder, self.recorder.rank, window)
        end = time.monotonic() + 60
        while export.is_pending(path):
            assert time.monotonic() < end
            time.sleep(0.01)
        self.windows.poll()
        document: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
        return document


def steps_of(trace: dict[str, Any]) -> list[int]:
    found = [re.fullmatch(r"ProfilerStep#(\d+)", event["name"]) for event in trace["traceEvents"]]
    return sorted(int(match[1]) for match in found if match)


def names_of(trace: dict[str, Any]) -> Counter[str]:
    return Counter(event["name"] for event in trace["traceEvents"] if event.get("ph") == "X")


@pytest.fixture(autouse=True)
def _nothing_stays_on() -> Any:
    yield
    assert not is_profiler_enabled()
    assert not others().are_active


def test_a_window_holds_its_steps_and_no_other(tmp_path: Path) -> None:
    training = Training(tmp_path, steps="5:2").run(12)
    trace = training.trace()
    assert steps_of(trace) == [5, 6]
    # One Linear each: forward calls of two steps, backward calls of the same.
    assert names_of(trace)["aten::addmm"] == 4
    assert names_of(trace)["AddmmBackward0"] == 4
    assert trace["distributedInfo"] == {"rank": 0, "world_size": 1}
    assert trace["traceName"].startswith("rank-00000.w0000.json.")
    assert training.recorder.states() == ["planned", "started", "stopped", "exported"]
    assert training.recorder.records[-1]["file"] == "rank-00000.w0000.json.gz"


def test_auto_is_two_windows_of_many_short_steps(tmp_path: Path) -> None:
    training = Training(tmp_path).run(80)
    assert steps_of(training.trace()) == list(range(8, 28))
    assert steps_of(training.trace(5001)) == list(range(44, 64))
    assert WindowRequest.from_bytes(request_file(tmp_path, 0).read_bytes()) == WindowRequest(0, 8, 20)


def test_auto_has_fewer_steps_when_they_are_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic_ns
    training = Training(tmp_path)
    monkeypatch.setattr(window_length.time, "monotonic_ns", lambda: now() + training.step * 3_000_000_000)
    training.run(52)
    assert [steps_of(training.trace(window)) for window in (0, 5001)] == [list(range(8, 13)), list(range(44, 49))]


def test_auto_has_fewer_steps_when_they_are_full_of_events(tmp_path: Path) -> None:
    training = Training(tmp_path)
    many = torch.optim.SGD([torch.nn.Parameter(torch.ones(1)) for _ in range(2000)], 0.1)
    training.recorder.optimizers = lambda: [many]  # type: ignore[method-assign]
    assert steps_of(training.run(20).trace()) == list(range(8, 13))


def test_ranks_take_the_length_that_rank_0_decided_also_late(tmp_path: Path) -> None:
    in_time, late = Training(tmp_path / "a", rank=3), Training(tmp_path / "b", rank=3)
    in_time.run(6)
    publish(request_file(tmp_path / "a", 0), WindowRequest(0, 8, 5))
    in_time.run(50)
    late.run(11)
    publish(request_file(tmp_path / "b", 0), WindowRequest(0, 8, 5))
    late.windows.poll()
    late.run(50)
    for training in (in_time, late):
        assert [steps_of(training.trace(window)) for window in (0, 5001)] == [list(range(8, 13)), list(range(44, 49))]
    assert not late.recorder.reasons()


def test_a_short_job_keeps_what_of_its_window_it_came_to(tmp_path: Path) -> None:
    training = Training(tmp_path).run(15)
    training.windows.close()
    assert steps_of(training.trace())[:7] == list(range(8, 15))


def test_auto_moves_behind_compilation_on_all_ranks(tmp_path: Path) -> None:
    first, other = Training(tmp_path), Training(tmp_path, rank=3)
    for step in range(6):
        first.windows.note_compilation(step)
        first.run(step + 1)
    first.run(40)
    other.run(40)
    assert steps_of(first.trace()) == steps_of(other.trace()) == list(range(16, 36))
    assert WindowRequest.from_bytes(request_file(tmp_path, 0).read_bytes()).first == 16


def test_a_rank_that_learns_too_late_of_a_move_says_so_and_goes_there_too(tmp_path: Path) -> None:
    training = Training(tmp_path, rank=3).run(9)
    publish(request_file(tmp_path, 0), WindowRequest(0, 16, 2))
    training.windows.poll()
    training.run(20)
    assert any("moved to step 16" in reason for reason in training.recorder.reasons())
    assert steps_of(training.trace()) == [16, 17]


def test_what_was_published_before_the_job_began_is_of_another_start(tmp_path: Path) -> None:
    publish(request_file(tmp_path, 0), WindowRequest(0, 12, 1))
    publish(request_file(tmp_path, 1), WindowRequest(1, 12, 1))
    training = Training(tmp_path)
    training.windows.poll()
    assert steps_of(training.run(30).trace()) == list(range(8, 28))
    assert not trace_file(tmp_path, 0, 1).exists()


def test_windows_repeat(tmp_path: Path) -> None:
    training = Training(tmp_path, steps="2:1", repeat=4).run(12)
    assert [steps_of(training.trace(window)) for window in (0, 5001, 5002)] == [[2], [6], [10]]


def test_a_request_is_obeyed_or_refused_as_too_late(tmp_path: Path) -> None:
    training = Training(tmp_path, steps="none").run(3)
    publish(request_file(tmp_path, 1), WindowRequest(1, 6, 2))
    training.windows.poll()
    training.run(8)
    publish(request_file(tmp_path, 2), WindowRequest(2, 6, 2))
    training.windows.poll()
    training.run(12)
    assert steps_of(training.trace(1)) == [6, 7]
    assert training.recorder.states(2) == ["planned", "skipped"]
    assert "the request arrived too late, at step 9" in training.recorder.reasons()


@pytest.mark.parametrize(
    ("ranks", "is_asked"), [("all", True), ("hosts", False), ("0,8", False), ("3", True), ("x", False)]
)
def test_only_ranks_that_are_asked_record(tmp_path: Path, ranks: str, is_asked: bool) -> None:
    training = Training(tmp_path, steps="2:1", ranks=ranks, rank=3)
    training.recorder.local_rank = 1
    training.windows = Windows(training.recorder)
    training.run(5)
    assert ("stopped" in training.recorder.states()) == is_asked


def test_a_window_that_the_program_ends_in_is_kept(tmp_path: Path) -> None:
    training = Training(tmp_path, steps="2:10").run(4)
    training.windows.close()
    assert steps_of(training.trace()) == [2, 3, 4]
    assert "the program ended in step 4" in training.recorder.reasons()


def test_a_window_that_the_program_never_reached_is_skipped(tmp_path: Path) -> None:
    training = Training(tmp_path, steps="20:1").run(4)
    training.windows.close()
    assert training.recorder.states() == ["planned", "skipped"]


def test_an_error_ends_the_window_and_the_next_one_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lostflops.collect import open_window

    class Broken(open_window.ModuleRanges):
        def attach(self) -> None:
            super().attach()
            raise OSError("of our own")

    with monkeypatch.context() as patch:
        patch.setattr(open_window, "ModuleRanges", Broken)
        training = Training(tmp_path, steps="2:1", repeat=4).run(4)
        assert not is_profiler_enabled()
    assert training.recorder.states(0) == ["planned", "failed"]
    assert not training.model._forward_hooks
    training.run(9)
    assert steps_of(training.trace(5001)) == [6]
    training.windows.close()  # step 9 prepared another window, and torch 2.8 does not prepare a second one


def test_a_folder_that_cannot_be_written_costs_the_trace_alone(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    training = Training(folder, steps="2:1")
    folder.rmdir()
    training.run(6)
    assert training.recorder.states() == ["planned", "started", "stopped", "failed"]
    assert training.step == 6


def test_where_no_process_can_be_made_the_trace_is_written_at_exit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "")
    training = Training(tmp_path, steps="2:1").run(6)
    assert not trace_file(tmp_path, 0, 0).exists()
    training.windows.close()
    assert steps_of(training.trace()) == [2]


def test_where_no_process_can_be_made_memory_holds_the_first_windows_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "")
    training = Training(tmp_path, steps="2:1", repeat=3).run(15)
    assert [training.recorder.states(window)[-1] for window in (0, 5001, 5002, 5003)] == ["stopped"] * 2 + [
        "failed"
    ] * 2
    training.windows.close()
    assert [training.recorder.states(window)[-1] for window in (0, 5001)] == ["exported"] * 2


def test_a_trace_that_was_carried_away_at_once_counts_as_written(tmp_path: Path) -> None:
    (tmp_path / "capture" / "windows").mkdir(parents=True)
    (tmp_path / "spool").mkdir()
    training = Training(tmp_path / "spool", steps="2:1").run(6)
    while export.is_pending(trace_file(training.folder, 0, 0)):
        time.sleep(0.01)
    Gatherer(training.folder, tmp_path / "capture", "host").gather()
    training.windows.poll()
    assert training.recorder.states() == ["planned", "started", "stopped", "exported"]


def test_a_profiler_of_the_program_that_runs_keeps_ours_away(tmp_path: Path) -> None:
    training = Training(tmp_path, steps="3:1")
    with torch.profiler.profile() as own:
        training.run(6)
    assert training.recorder.states() == ["planned", "skipped"]
    assert "another profiler is active" in training.recorder.reasons()
    assert len(own.events()) > 0


def test_a_profiler_of_the_program_in_its_warm_up_keeps_ours_away(tmp_path: Path) -> None:
    training = Training(tmp_path, steps="3:1")
    schedule = torch.profiler.schedule(wait=1, warmup=5, active=2)
    with torch.profiler.profile(schedule=schedule) as own:
        training.run(8, lambda _: own.step())
    assert training.recorder.states() == ["planned", "skipped"]
    assert sum(event.name == "aten::addmm" for event in own.events()) > 0


def test_ours_gives_way_when_the_program_starts_a_profiler(tmp_path: Path) -> None:
    training = Training(tmp_path, steps="3:4").run(5)
    with torch.profiler.profile() as own:
        training.run(7)
    assert sum(event.name == "aten::addmm" for event in own.events()) == 4
    assert steps_of(training.trace()) == [3, 4, 5]
    assert "another profiler started" in training.recorder.reasons()


def test_ours_gives_way_in_its_warm_up(tmp_path: Path) -> None:
    training = Training(tmp_path, steps="3:4").run(2)
    assert training.windows.is_profiling
    with torch.profiler.profile() as own:
        training.run(9)
    assert sum(event.name == "aten::addmm" for event in own.events()) == 14
    assert training.recorder.states() == ["planned", "skipped"]


def test_ours_gives_way_to_a_profiler_on_another_thread(tmp_path: Path) -> None:
    training, seen = Training(tmp_path, steps="3:9").run(4), []

    def profile() -> None:
        with torch.profiler.profile() as own:
            torch.ones(3) + 1
        seen.append(sum(event.name == "aten::add" for event in own.events()))

    thread = threading.Thread(target=profile)
    thread.start()
    training.run(6, lambda _: time.sleep(0.3))
    thread.join()
    assert seen == [1]
    assert steps_of(training.trace())[0] == 3


def test_samples_tell_where_the_training_thread_is(tmp_path: Path) -> None:
    training = Training(tmp_path, steps="2:2", options=frozenset({"samples"})).run(6, lambda _: time.sleep(0.2))
    training.windows.sampler.join(5)
    names: dict[str, str] = {}
    stacks: Counter[str] = Counter()
    for record in (found for found in training.recorder.records if found["kind"] == "stacks"):
        names |= record["names"]
        stacks.update(names[str(number)] for _, number in record["samples"])
    # A hundred a second for two steps of 0.2 s; a busy machine takes fewer.
    assert 4 <= sum(stacks.values()) <= 60
    assert "time.sleep" not in stacks
    assert (
        stacks.most_common(1)[0][0]
        .split(";")[-1]
        .startswith("test_samples_tell_where_the_training_thread_is.<locals>.<lambda> ")
    )
    assert not any(re.search(r"\s/", stack) for stack in stacks)


PROGRAM = """
import sys
from pathlib import Path
import torch
from tests.collect.fake_recorder import FakeRecorder
from lostflops.collect.windows import Windows
model = torch.nn.Linear(8, 8)
windows = Windows(FakeRecorder(Path(sys.argv[1]), [model], steps="2:2")) if len(sys.argv) > 1 else None
for step in range(1, 8):
    model(torch.ones(4, 8)).sum().backward()
    if windows:
        windows.edge(step)
print("done")
"""


def test_sampling_survives_what_programs_put_into_the_path_and_forgets_a_window_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, tmp_path, b"/bytes"])
    records: list[dict[str, Any]] = []
    sampler, held = Sampler(records.append, time.time_ns), []
    for _ in range(3):
        sampler.start(threading.get_ident())
        time.sleep(0.1)
        sampler.stop()
        sampler.join(10)
        held.append(len(sampler._numbers))
    assert {record["kind"] for record in records} == {"stacks"}
    names = [number for record in records for number in record["names"]]
    assert len(names) == len(set(names)) == sum(held)


def test_the_program_prints_what_it_would_print(tmp_path: Path) -> None:
    environment = {**os.environ, "KINETO_LOG_LEVEL": "99", "PYTHONPATH": os.pathsep.join(sys.path)}
    outcomes = [
        subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, env=environment, check=True)
        for arguments in ([], [str(tmp_path)])
    ]
    assert outcomes[0].stdout == outcomes[1].stdout == b"done\n"
    assert outcomes[0].stderr == outcomes[1].stderr == b""
