"""Pauses of the garbage collector are counted, on the training thread alone."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lostflops.collect.garbage import Garbage
from tests.collect.jobs import PYTHON, finish, recorded, records

JOB = """
import gc, torch
held = [[number] for number in range(300_000)]
net = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(net.parameters())
gc.disable()
for step in range(8):
    optimizer.zero_grad()
    net(torch.ones(2, 4)).sum().backward()
    if step % 2:
        gc.collect()
    optimizer.step()
"""


@pytest.fixture
def watched() -> Iterator[Garbage]:
    was_on = gc.isenabled()
    gc.disable()
    found = Garbage(threading.get_ident())
    found.watch()
    yield found
    found.leave()
    if was_on:
        gc.enable()


def test_a_collection_is_counted_once(watched: Garbage) -> None:
    gc.collect()
    gc.collect()
    pauses, count = watched.take()
    assert pauses > 0
    assert count == 2
    assert watched.take() == (0, 0)


def test_those_of_other_threads_are_not(watched: Garbage) -> None:
    other = threading.Thread(target=gc.collect)
    other.start()
    other.join()
    assert watched.take() == (0, 0)


def test_nothing_is_watched_afterwards(watched: Garbage) -> None:
    watched.leave()
    gc.collect()
    assert watched.take() == (0, 0)
    watched.leave()


def test_a_step_tells_its_pauses(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = finish([PYTHON, "-c", JOB], recorded(tmp_path / "capture"))
    assert done.code == 0, done.stderr.decode()
    # The end of the first step is known when the second one updates.
    steps = records(tmp_path / "capture", "step")[2:]
    assert [step["gc_count"] for step in steps] == [number % 2 for number in range(2, 8)]
    odd = [step["gc"] for step in steps if step["gc_count"]]
    assert min(odd) > 1_000_000
    assert all(step["gc"] <= step["stop"] - step["start"] for step in steps)
    assert not any(step["gc"] for step in steps if not step["gc_count"])
