"""Named memory marks: what they record, and that they never disturb the program."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import lostflops
from lostflops.collect import current, marks
from lostflops.ingest import ingest
from lostflops.store.run import Run
from tests.collect.captured import records

torch = pytest.importorskip("torch", reason="torch is not installed")

BALLAST = 64 << 20
SLACK = 4 << 20
"""What an allocation takes besides its own bytes."""


def train(steps: int) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()


def marks_of(run: Path) -> list[dict[str, Any]]:
    return records(run, "mark")[0]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the kernel does not report resident memory")
def test_a_mark_has_the_resident_memory_and_the_step(tmp_path: Path) -> None:
    with lostflops.record(tmp_path, steps="none"):
        lostflops.mark("start")
        ballast = torch.ones(BALLAST // 4)
        lostflops.mark("after_ballast")
        train(3)
        lostflops.mark("after_training")
        del ballast
    first, second, third = marks_of(tmp_path)
    assert [one["name"] for one in (first, second, third)] == ["start", "after_ballast", "after_training"]
    assert [one["number"] for one in (first, second, third)] == [0, 1, 2]
    assert [one["step"] for one in (first, second)] == [None, None], "held until the process trains"
    assert third["step"] == 3, "the next step"
    assert first["time"] < second["time"] < third["time"]
    assert abs(second["resident"] - first["resident"] - BALLAST) < SLACK
    assert (first["device"], first["allocated"], first["peak"]) == (None, None, None)


def test_a_used_device_is_read_from_its_counters_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = {"allocated_bytes.all.current": 5, "reserved_bytes.all.current": 8, "allocated_bytes.all.peak": 7}
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda index: counted if index == 3 else {})
    assert marks._read_device() == {"device": "cuda:3", "allocated": 5, "reserved": 8, "peak": 7}


def test_a_device_that_the_program_has_not_used_is_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the device was initialised")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "current_device", refuse)
    monkeypatch.setattr(torch.cuda, "memory_stats", refuse)
    assert set(marks._read_device().values()) == {None}


def test_a_loop_of_marks_is_limited_and_the_loss_is_counted(tmp_path: Path) -> None:
    with lostflops.record(tmp_path / "run", steps="none"):
        for _ in range(marks.MOST_OF_NAME + 37):
            lostflops.mark("early")
        train(2)
        for number in range(marks.MOST + 500):
            lostflops.mark(f"mark {number}")
        lostflops.mark("early")
    found = marks_of(tmp_path / "run")
    assert len(found) == marks.MOST
    assert [one["occurrence"] for one in found if one["name"] == "early"] == list(range(marks.MOST_OF_NAME))
    assert len(records(tmp_path / "run", "note")[0]) < 20
    ingest([tmp_path / "run" / "capture"], tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        assert run.rows("select count(*), max(number) from marks") == [(marks.MOST, marks.MOST - 1)]
        lost = 37 + 500 + marks.MOST_OF_NAME + 1
        assert run.rows("select effect, sum(count) from stats where what = 'marks_dropped' group by 1") == [
            ("dropped", lost)
        ]


def test_a_mark_never_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Nameless:
        def __str__(self) -> str:
            raise RuntimeError("no name")

    lostflops.mark("nobody records")
    with lostflops.record(tmp_path, steps="none"):
        lostflops.mark(Nameless())  # type: ignore[arg-type]
        lostflops.mark("x" * 1000)
        other = threading.Thread(target=lostflops.mark, args=("on another thread",))
        other.start()
        other.join()
        train(2)
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: 1 / 0)
        lostflops.mark("no counters")
    assert current.recorder is None
    assert [one["name"] for one in marks_of(tmp_path)] == ["x" * 100, "on another thread"]
    assert [note["what"] for note in records(tmp_path, "note")[0]] == ["collector_errors"]


def test_a_mark_in_a_compiled_step_does_not_break_it(tmp_path: Path) -> None:
    script = """
import sys, torch, lostflops
def step(x):
    lostflops.mark("inside")
    return x + 1
with lostflops.record(sys.argv[1], steps="none"):
    assert torch.compile(step, backend="eager", fullgraph=True)(torch.ones(2)).tolist() == [2, 2]
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert records(tmp_path, "mark") == {}


def test_without_a_recording_no_torch_is_imported() -> None:
    script = "import lostflops, sys; lostflops.mark('x'); print('torch' in sys.modules, 'duckdb' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
