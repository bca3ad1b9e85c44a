"""Two processes that stand for two hosts, with a store between them; one clock is wrong by a known offset."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

OFFSET = 7_000_000_000
PROGRAM = """
import json, sys, time
from pathlib import Path
import torch.distributed as dist
from lostflops.collect import clock_exchange
from tests.collect.fake_recorder import FakeRecorder
rank, port, offset, ends_early, clock_exchange._PATIENCE = (int(word) for word in sys.argv[1:])
recorder = FakeRecorder(Path("."), rank=rank)
recorder.world_size = 4
recorder.wall = lambda monotonic=None: time.time_ns() + offset
store = dist.TCPStore("127.0.0.1", port, None, is_master=False)
store.set(f"here{rank}", "yes")
if not ends_early:
    exchange = clock_exchange.ClockExchange(recorder, local_world_size=2)
    exchange.begin(0, store)
    exchange.begin(0, store)
    exchange.join(30)
print(json.dumps(recorder.records))
"""


SERVER = """
import time
from torch.distributed import TCPStore
store = TCPStore("127.0.0.1", 0, None, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
while store.num_keys() < 1:  # until somebody is there
    time.sleep(0.01)
time.sleep(3)  # until it waits for a clock, also on a busy machine
"""


@pytest.fixture
def store() -> Any:
    from torch.distributed import TCPStore

    return TCPStore("127.0.0.1", 0, None, is_master=True, wait_for_workers=False)


def records_of(*processes: subprocess.Popen[str]) -> list[list[dict[str, Any]]]:
    outcomes = [process.communicate(timeout=90) for process in processes]
    assert all(process.returncode == 0 for process in processes), outcomes
    assert all(err == "" for _, err in outcomes), outcomes
    return [json.loads(out) for out, _ in outcomes]


def start(rank: int, port: int, offset: int = 0, ends_early: int = 0, patience: int = 4) -> subprocess.Popen[str]:
    numbers = (rank, port, offset, ends_early, patience)
    words = [sys.executable, "-c", PROGRAM, *map(str, numbers)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))


def test_readings_of_both_hosts_hold_the_offset_between_them(store: Any) -> None:
    first, second = records_of(start(0, store.port), start(2, store.port, OFFSET))
    (to_first,) = [record for record in first if record.get("peer") == 2]
    (to_second,) = [record for record in second if record.get("peer") == 0]
    lowest = to_first["peer_wall"] - to_first["wall"]
    highest = to_second["wall"] - to_second["peer_wall"]
    assert lowest <= OFFSET <= highest
    assert highest - lowest < 500_000_000
    # Two windows within a minute: both clocks of our own twice, the others' once.
    assert sum("peer" not in record for record in first if record["kind"] == "clock") == 2


def test_a_host_that_died_costs_a_note(store: Any) -> None:
    first, _ = records_of(start(0, store.port, patience=1), start(2, store.port, ends_early=1))
    assert [record["what"] for record in first if record["kind"] == "note"] == ["clock_exchange"]


def test_a_store_that_is_gone_costs_a_note() -> None:
    from lostflops.collect.clock_exchange import ClockExchange
    from tests.collect.fake_recorder import FakeRecorder

    class Gone:
        host, port = "127.0.0.1", 1

        def clone(self) -> Any:
            raise RuntimeError("connection refused")

    recorder = FakeRecorder(Path(), rank=2)
    recorder.world_size = 4
    exchange = ClockExchange(recorder, local_world_size=2)
    began = time.monotonic()
    exchange.begin(0, Gone())
    assert time.monotonic() - began < 1
    exchange.join(10)
    assert "the job's store did not answer: RuntimeError" in recorder.reasons()


def test_a_store_that_ends_meanwhile_makes_no_noise() -> None:
    """Rank 0 has the store and leaves while another host waits for its clock."""
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        (records,) = records_of(start(2, int(server.stdout.readline())))
    assert [record["reason"] for record in records if record["kind"] == "note"] == ["rank 0 sent no clock reading"]


@pytest.mark.parametrize(("rank", "world_size"), [(0, 2), (1, 4)])
def test_one_host_or_another_rank_sends_nothing(rank: int, world_size: int) -> None:
    from lostflops.collect.clock_exchange import ClockExchange
    from tests.collect.fake_recorder import FakeRecorder

    recorder = FakeRecorder(Path(), rank=rank)
    recorder.world_size = world_size
    exchange = ClockExchange(recorder, local_world_size=2)
    exchange.begin(0, object())
    exchange.join(5)
    assert [sorted(record) for record in recorder.records] == [["kind", "monotonic", "wall"]]


def test_no_thread_is_inside_the_store_when_the_program_ends(store: Any) -> None:
    from lostflops.collect.clock_exchange import ClockExchange
    from tests.collect.fake_recorder import FakeRecorder

    recorder = FakeRecorder(Path(), rank=2)
    recorder.world_size = 4
    exchange = ClockExchange(recorder, local_world_size=2)
    exchange.begin(0, store)
    time.sleep(0.1)
    assert [thread.name for thread in threading.enumerate() if thread.name == "lostflops-clock"]
    exchange.close()
    assert not [thread.name for thread in threading.enumerate() if thread.name == "lostflops-clock"]
