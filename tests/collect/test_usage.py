"""What the collector reads of threads never touches what is the program's."""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
from pathlib import Path

import pytest

from lostflops.collect.busy_threads import BusyThreads, _find_caller
from lostflops.collect.thread_usage import ThreadUsage

pytestmark = pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="no scheduler statistics")


def test_a_descriptor_that_the_program_closed_is_not_closed_again(tmp_path: Path) -> None:
    usage = ThreadUsage()
    number = usage._file
    os.close(number)
    own = os.open(tmp_path / "own", os.O_CREAT | os.O_RDWR)
    assert own == number, "the program's file has the same number"
    assert usage.take()["cpu"] is None
    assert usage.take()["cpu"] is None
    usage.close()
    assert os.write(own, b"still open") == 10
    os.close(own)


def test_a_thread_is_where_its_program_is_not_in_a_wait_of_threading() -> None:
    def monitor(gate: threading.Event) -> None:
        gate.wait()

    gate = threading.Event()
    waiting = threading.Thread(target=monitor, args=(gate,))
    waiting.start()
    time.sleep(0.1)
    frame = sys._current_frames()[waiting.ident or 0]
    assert frame.f_code.co_name == "wait"
    try:
        assert _find_caller(frame).f_code.co_name == "monitor"
    finally:
        gate.set()
        waiting.join()


def test_a_busy_thread_is_seen_after_many_short_ones() -> None:
    told: list[dict] = []
    threads = BusyThreads(threading.get_ident(), told.append)
    for _ in range(25):
        gate = threading.Event()
        short = threading.Thread(target=gate.wait)
        short.start()
        threads.look()
        gate.set()
        short.join()
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            sum(range(1000))

    spinning = threading.Thread(target=spin, name="spins")
    spinning.start()
    try:
        threads.look()
        time.sleep(0.3)
        threads.look()
    finally:
        stop.set()
        spinning.join()
    threads.tell()
    assert [one["name"] for one in told[-1]["value"]["threads"]] == ["spins"]


def test_a_wrapped_function_can_be_pickled() -> None:
    """Programs send torch.save to processes by its name."""
    torch = pytest.importorskip("torch")
    from lostflops.collect.interludes import _wrap

    class Recorder:
        interludes = type("Interludes", (), {"save_begins": None, "save_ended": None})()

        def run_guarded(self, _: object) -> None:
            return None

    original = torch.save
    restore = _wrap(torch, "save", Recorder())
    try:
        assert torch.save is not original
        assert pickle.loads(pickle.dumps(torch.save)) is torch.save
    finally:
        restore()
    assert torch.save is original is torch.serialization.save
