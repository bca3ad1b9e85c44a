"""What the collector records beside times: use of the core, checkpoints, evaluation, debug modes, busy threads."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from lostflops.collect.busy_threads import BusyThreads  # noqa: E402
from lostflops.collect.debug_modes import DebugModes  # noqa: E402
from lostflops.collect.interludes import Interludes  # noqa: E402
from lostflops.collect.thread_usage import ThreadUsage  # noqa: E402
from tests.collect.jobs import PYTHON, finish, recorded, records  # noqa: E402

JOB = """
import threading, time, torch
def count():
    number = 0
    while True:
        number += 1
threading.Thread(target=count, name="exporter", daemon=True).start()
net = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(net.parameters())
for step in range(9):
    with torch.autograd.set_detect_anomaly(step == 5):
        net(torch.ones(2, 4)).sum().backward()
    if step == 6:
        torch.save(torch.zeros(5_000_000), "/dev/null")
    if step == 7:
        with torch.no_grad():
            net(torch.ones(2, 4))
            time.sleep(0.05)
            net(torch.ones(2, 4))
    if step == 8:
        mapped = [torch.ones(25_000_000) for _ in range(1)]
    optimizer.step()
    optimizer.zero_grad()
time.sleep(1.5)
"""


def test_use_of_the_core() -> None:
    """A thread that sleeps uses no CPU time; memory that is touched faults once a page."""
    usage = ThreadUsage()
    if usage.take()["cpu"] is None:
        pytest.skip("this kernel keeps no scheduler statistics")
    time.sleep(0.1)
    asleep = usage.take()
    held = bytearray(40_000_000)
    touched = usage.take()
    usage.close()
    assert len(held) == 40_000_000
    assert asleep["cpu"] is not None
    assert asleep["cpu"] < 50_000_000
    assert touched["faults"] is not None
    assert touched["faults"] >= 20  # one per huge page at the least
    assert all(value is None or value >= 0 for value in touched.values())


def test_no_scheduler_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lostflops.collect.thread_usage._open", lambda thread: -1)
    found = ThreadUsage().take()
    assert found["cpu"] is None
    assert found["queued"] is None
    assert found["faults"] is not None


def test_nested_saves_count_once_and_evaluations_from_first_to_last() -> None:
    told = Interludes()
    for action, now in ((told.save_begins, 10), (told.save_begins, 20), (told.save_ended, 30), (told.save_ended, 50)):
        action(now)
    for action, now in ((told.evaluation_begins, 60), (told.evaluation_ended, 70), (told.evaluation_begins, 80)):
        action(now)
    told.evaluation_ended(95)
    assert told.take() == {"saving": 40, "evaluating": 35}
    assert told.take() == {"saving": 0, "evaluating": 0}


def test_modes_are_recorded_when_they_are_first_on() -> None:
    put: list[dict[str, Any]] = []
    modes = DebugModes(put.append)
    modes.look()
    before = len(put)
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        modes.look()
        modes.look()
    assert len(put) == before + 1
    assert put[-1]["value"]["anomaly"] == "tracebacks"
    assert 0 < put[-1]["value"]["frame_ns"] < 100_000_000


def test_a_thread_that_sleeps_is_not_busy() -> None:
    put: list[dict[str, Any]] = []
    over = threading.Event()
    other = threading.Thread(target=over.wait, name="sleeper")
    other.start()
    watched = BusyThreads(threading.get_ident(), put.append)
    watched.look()
    time.sleep(0.1)
    watched.look()
    watched.tell()
    over.set()
    other.join()
    assert [one for record in put for one in record["value"]["threads"] if one["name"] == "sleeper"] == []


def test_a_job(tmp_path: Path) -> None:
    done = finish([PYTHON, "-c", JOB], recorded(tmp_path / "capture"))
    assert done.code == 0, done.stderr.decode()
    steps = {step["step"]: step for step in records(tmp_path / "capture", "step")}
    assert [number for number, step in steps.items() if step["saving"]] == [6]
    assert [number for number, step in steps.items() if step["evaluating"]] == [7]
    assert steps[7]["evaluating"] >= 50_000_000
    assert steps[8]["faults"] == max(step["faults"] for number, step in steps.items() if number > 1)
    facts = records(tmp_path / "capture", "job")
    (modes,) = (fact["value"] for fact in facts if fact["key"] == "debug_modes")
    assert modes["anomaly"] == "check_nan"
    threads = [fact["value"] for fact in facts if fact["key"] == "threads"][-1]
    assert [one["name"] for one in threads["threads"]] == ["exporter"]
    assert threads["threads"][0]["places"][0][0].startswith("count <string>:")
