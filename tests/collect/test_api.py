"""What programs tell the collector themselves, in this process."""

from __future__ import annotations

import gc
import os
import resource
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import lostflops
from lostflops.collect import current
from lostflops.collect.budget import EDGES_ONLY, OFF
from tests.collect.captured import records, share

torch = pytest.importorskip("torch", reason="torch is not installed")


class Training:
    """A model that is updated twice for each batch: only the loop knows what a step is."""

    def __init__(self) -> None:
        self.model = torch.nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def update(self, batch: Any) -> None:
        self.model(batch).sum().backward()
        self.optimizer.step()

    def twice(self, batch: Any) -> None:
        self.update(batch)
        self.update(batch)


def batches(count: int, seconds: float = 0.0) -> Iterator[Any]:
    for _ in range(count):
        time.sleep(seconds)
        yield torch.ones(3, 4)


def steps_of(run: Path) -> list[dict[str, Any]]:
    return records(run, "step")[0]


def test_a_loop_ends_a_step_with_each_batch(tmp_path: Path) -> None:
    training = Training()
    with lostflops.record(tmp_path, steps="none") as recording:
        for batch in recording.steps(batches(5)):
            training.twice(batch)
    found = steps_of(tmp_path)
    assert [(step["step"], step["microbatches"], step["samples"]) for step in found] == [(n, 2, 3) for n in range(5)]
    assert all(later["start"] == earlier["stop"] for earlier, later in pairwise(found))
    assert len(records(tmp_path, "end")[0]) == 1


def test_the_wait_for_a_batch_is_data(tmp_path: Path) -> None:
    training = Training()
    with lostflops.record(tmp_path, steps="none") as recording:
        for batch in recording.steps(batches(5, seconds=0.05)):
            training.update(batch)
            time.sleep(0.01)
    found = steps_of(tmp_path)
    assert all(step["data"] >= 50_000_000 for step in found)
    assert all(step["stop"] - step["start"] >= step["data"] + 10_000_000 for step in found)


def test_batches_of_a_loader_are_counted_and_waited_for_once(tmp_path: Path) -> None:
    training = Training()
    loader = torch.utils.data.DataLoader(torch.ones(12, 4), batch_size=3)
    with lostflops.record(tmp_path, steps="none") as recording:
        for batch in recording.steps(loader):
            training.update(batch)
    assert [step["samples"] for step in steps_of(tmp_path)] == [3] * 4
    assert share(steps_of(tmp_path), "data") < 1


@pytest.mark.parametrize(("is_trained", "expected"), [(True, 3), (False, 2)])
def test_a_loop_that_is_left_ends_its_step_if_it_trained(tmp_path: Path, is_trained: bool, expected: int) -> None:
    training = Training()
    with lostflops.record(tmp_path, steps="none") as recording:
        for number, batch in enumerate(recording.steps(batches(9))):
            if number < 2 or is_trained:
                training.update(batch)
            if number == 2:
                break
    assert len(steps_of(tmp_path)) == expected


def test_steps_that_the_program_ends_overrule_optimizers(tmp_path: Path) -> None:
    training = Training()
    with lostflops.record(tmp_path, steps="none"):
        training.update(torch.ones(3, 4))
        lostflops.step()
        for batch in batches(4):
            training.twice(batch)
            lostflops.step()
    assert [step["microbatches"] for step in steps_of(tmp_path)] == [1, 2, 2, 2, 2]


def test_without_a_loop_of_ours_optimizers_end_steps(tmp_path: Path) -> None:
    training = Training()
    with lostflops.record(tmp_path, steps="none"):
        for batch in batches(3):
            training.twice(batch)
    assert [step["microbatches"] for step in steps_of(tmp_path)] == [1] * 6


def test_a_step_that_nothing_preceded_begins_the_first(tmp_path: Path) -> None:
    before = time.time_ns()
    with lostflops.record(tmp_path, steps="none"):
        for _ in range(3):
            lostflops.step()
    found = steps_of(tmp_path)
    assert len(found) == 2
    assert before <= found[0]["start"] <= found[0]["stop"]


def test_an_unrecorded_program_may_end_steps_and_nothing_happens(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    lostflops.step()
    assert list(tmp_path.iterdir()) == []


def test_nothing_stays_behind_and_another_run_can_follow(tmp_path: Path) -> None:
    untouched = (torch.autograd.backward, torch.utils.data.DataLoader.__iter__, torch.amp.GradScaler.step)
    training = Training()
    for name in ("first", "second"):
        with lostflops.record(tmp_path / name, steps="none") as recording:
            assert torch.autograd.backward is not untouched[0]
            for batch in recording.steps(batches(3)):
                training.update(batch)
        assert untouched == (torch.autograd.backward, torch.utils.data.DataLoader.__iter__, torch.amp.GradScaler.step)
        training.update(torch.ones(3, 4))
    assert len(steps_of(tmp_path / "first")) == len(steps_of(tmp_path / "second")) == 3


def test_a_recording_inside_another_goes_to_the_outer_and_does_not_end_it(tmp_path: Path) -> None:
    training = Training()
    with lostflops.record(tmp_path / "outer", steps="none"):
        with lostflops.record(tmp_path / "inner") as inner:
            for batch in inner.steps(batches(2)):
                training.update(batch)
        training.update(torch.ones(3, 4))
        lostflops.step()
    assert len(steps_of(tmp_path / "outer")) == 3
    assert not (tmp_path / "inner").exists()


def test_an_error_of_the_program_passes_and_what_was_recorded_stays(tmp_path: Path) -> None:
    training = Training()

    def train() -> None:
        with lostflops.record(tmp_path, steps="none") as recording:
            for number, batch in enumerate(recording.steps(batches(5))):
                training.update(batch)
                if number == 2:
                    raise ValueError("out of luck")

    with pytest.raises(ValueError, match="out of luck"):
        train()
    assert len(steps_of(tmp_path)) == 3
    assert len(records(tmp_path, "end")[0]) == 1


def test_an_optimizer_that_raises_inside_a_scaler_costs_no_later_step(tmp_path: Path) -> None:
    class Failing(torch.optim.SGD):  # type: ignore[misc]
        is_failing = False

        def step(self, closure: Any = None) -> Any:
            if self.is_failing:
                raise RuntimeError("out of memory")
            return super().step(closure)

    model = torch.nn.Linear(4, 1)
    optimizer, scaler = Failing(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
    with lostflops.record(tmp_path, steps="none"):
        for number in range(10):
            scaler.scale(model(torch.ones(3, 4)).sum()).backward()
            Failing.is_failing = number == 4
            with suppress(RuntimeError):
                scaler.step(optimizer)
            scaler.update()
    found = steps_of(tmp_path)
    assert [step["microbatches"] for step in found] == [1] * 10


def test_an_optimizer_that_raised_and_is_thrown_away_costs_no_later_step(tmp_path: Path) -> None:
    class Failing(torch.optim.SGD):  # type: ignore[misc]
        def step(self, closure: Any = None) -> Any:
            raise RuntimeError("out of memory")

    model = torch.nn.Linear(4, 1)
    with lostflops.record(tmp_path, steps="none"):
        optimizer = Failing(model.parameters(), lr=0.1)
        model(torch.ones(3, 4)).sum().backward()
        with suppress(RuntimeError):
            optimizer.step()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        gc.collect()
        for _ in range(6):
            model(torch.ones(3, 4)).sum().backward()
            optimizer.step()
    assert [step["microbatches"] for step in steps_of(tmp_path)] == [2, 1, 1, 1, 1, 1]


def test_updates_that_no_hook_sees_end_steps_also_where_the_budget_leaves_nothing_else(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with lostflops.record(tmp_path, steps="none"):
        for number in range(12):
            if number == 6:
                assert current.recorder is not None
                current.recorder._budget.level = EDGES_ONLY
            model(torch.ones(3, 4)).sum().backward()
            with torch.no_grad():
                model.weight.add_(1)
    assert optimizer.param_groups
    assert len(steps_of(tmp_path)) >= 8


def test_a_loop_on_another_thread_ends_its_steps_itself_from_the_first_on(tmp_path: Path) -> None:
    training = Training()

    def train() -> None:
        for batch in recording.steps(batches(4)):
            training.twice(batch)

    with lostflops.record(tmp_path, steps="none") as recording:
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
    assert [step["microbatches"] for step in steps_of(tmp_path)] == [2] * 4


@pytest.mark.parametrize("how", ["budget", "errors"])
def test_a_collector_that_stops_leaves_no_profiler_on(tmp_path: Path, how: str) -> None:
    training = Training()
    with lostflops.record(tmp_path, steps="3:1000"):
        for number in range(9):
            training.update(torch.ones(3, 4))
            assert current.recorder is not None
            if number == 6 and how == "budget":
                current.recorder._obey({"kind": "overhead", "step": 6, "own_share": 1.0, "level": OFF, "reason": ""})
            elif number == 6:
                for _ in range(20):
                    current.recorder.count_failure(ValueError())
            assert torch._C._autograd._profiler_enabled() == (2 <= number < 6)
    assert [record["state"] for record in records(tmp_path, "window")[0]][:3] == ["planned", "started", "stopped"]


def test_a_recording_that_cannot_begin_says_nothing(tmp_path: Path, monkeypatch: Any, capfd: Any) -> None:
    monkeypatch.setattr("lostflops.collect.windows.plan_window", None)
    with lostflops.record(tmp_path):
        Training().update(torch.ones(3, 4))
    assert capfd.readouterr().err == ""


def test_models_that_follow_each_other_go_forward_all(tmp_path: Path) -> None:
    with lostflops.record(tmp_path, steps="none"):
        for _ in range(3):
            training = Training()
            for batch in batches(5):
                training.update(batch)
    seen = [bool(step["forward"]) for step in steps_of(tmp_path)]
    assert [sum(seen[first : first + 5]) for first in (0, 5, 10)] == [3, 3, 3]


def test_a_network_that_a_module_merely_holds_goes_forward(tmp_path: Path) -> None:
    training = Training()
    holder = torch.nn.ModuleDict({"networks": torch.nn.ModuleList([training.model])})
    with lostflops.record(tmp_path, steps="none"):
        for batch in batches(10):
            training.update(batch)
    assert holder["networks"]
    assert [bool(step["forward"]) for step in steps_of(tmp_path)[-4:]] == [True] * 4


def test_nothing_of_a_recording_stays_in_memory_or_on_modules(tmp_path: Path) -> None:
    training, recorders = Training(), []
    for _ in range(3):
        with lostflops.record(tmp_path, steps="none"):
            assert current.recorder is not None
            recorders.append(weakref.ref(current.recorder))
            for batch in batches(4):
                training.update(batch)
        assert not training.model._forward_hooks
        assert not training.model._forward_pre_hooks
    gc.collect()
    assert [recorder() for recorder in recorders] == [None] * 3


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_that_is_forked_inside_a_window_keeps_no_events(tmp_path: Path) -> None:
    """A loader's worker may live for days."""
    training = Training()
    with lostflops.record(tmp_path, steps="2:100"):
        for batch in batches(6):
            training.update(batch)
        child = os.fork()
        if child == 0:
            value, before = torch.ones(4), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            for _ in range(50_000):
                value.add(1)
            os._exit(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before > 30_000)
        assert os.waitpid(child, 0)[1] == 0


def test_a_version_of_torch_without_some_place_is_recorded_without_it(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.delattr(torch.amp, "GradScaler")
    training = Training()
    with lostflops.record(tmp_path, steps="none"):
        for batch in batches(4):
            training.update(batch)
    assert len(steps_of(tmp_path)) == 4
    assert ["gradient scalers" in record["reason"] for record in records(tmp_path, "note")[0]] == [True]


def test_a_version_of_torch_that_cannot_be_recorded_trains(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("lostflops.collect.hooks.skip_tracing", None)
    training, recording = Training(), lostflops.record(tmp_path)
    with pytest.warns(UserWarning, match="not recording"):
        recording.start()
    for batch in recording.steps(batches(3)):
        training.update(batch)
    recording.stop()
    assert current.recorder is None
    assert list(tmp_path.iterdir()) == []


def test_samples_of_an_evaluation_are_not_counted_as_trained(tmp_path: Path) -> None:
    training = Training()
    loader = torch.utils.data.DataLoader(torch.ones(12, 4), batch_size=3)
    with lostflops.record(tmp_path, steps="none"):
        for _ in range(3):
            for batch in loader:
                training.update(batch)
            with torch.no_grad():
                for batch in loader:
                    training.model(batch)
    assert [step["samples"] for step in steps_of(tmp_path)] == [3, 3, 3, 3, None, 3, 3, 3, None, 3, 3, 3]


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": "soon"},
        {"steps": "5:0"},
        {"ranks": "some"},
        {"options": ["shape"]},
        {"overhead": 0},
        {"overhead": 1.5},
    ],
)
def test_what_means_nothing_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(lostflops.LostflopsError, match=next(iter(wrong))):
        lostflops.record(tmp_path, **wrong)
