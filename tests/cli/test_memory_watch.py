"""A command that needs more memory than it may use says so, and ends before the machine is in trouble."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lostflops.cli.memory_watch import watch_memory
from lostflops.core import resources
from lostflops.core.errors import NotEnoughMemory, UsageError
from lostflops.store import memory_limit
from lostflops.store.run import Run
from lostflops.store.spread.engines import ChosenEngine
from lostflops.store.spread.worker_process import WorkerProcess, list_worker_ids
from lostflops.testing import SyntheticCluster, store

_TAKE = """
import sys, time
import numpy as np
from lostflops.cli.memory_watch import watch_memory
from lostflops.core.errors import NotEnoughMemory
held = []
try:
    with watch_memory():
        while True:
            {body}
except NotEnoughMemory as error:
    print(error)
    sys.exit(70)
"""


def take(body: str, limit: str = "400MB") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LOSTFLOPS_MEMORY": limit, "PYTHONPATH": os.pathsep.join(sys.path)}
    program = [sys.executable, "-c", _TAKE.format(body=body)]
    return subprocess.run(program, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_arrays_that_grow_beyond_the_limit_end_the_command() -> None:
    ended = take("held.append(np.ones(1 << 20)); time.sleep(0.005)")
    assert ended.returncode == 70
    assert ended.stdout.startswith("stopped, because it needs more memory than its limit of 400 MB")
    assert "LOSTFLOPS_MEMORY" in ended.stdout


def test_an_array_larger_than_any_machine_is_the_same_error() -> None:
    assert take("np.ones(1 << 55)").returncode == 70


def test_a_command_that_does_not_stop_is_ended() -> None:
    ended = take("""
            try:
                held.append(np.ones(1 << 20))
            except KeyboardInterrupt:
                pass
""")
    assert (ended.returncode, ended.stdout) == (NotEnoughMemory.exit_code, "")
    assert ended.stderr.startswith("lostflops: stopped, because it needs more memory than its limit of 400 MB")


def test_workers_count(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = WorkerProcess()
    try:
        [number] = list_worker_ids()
        until = time.monotonic() + 30
        while (used := resources.private_memory(number)) < 1 << 20 and time.monotonic() < until:
            time.sleep(0.01)
        monkeypatch.setenv("LOSTFLOPS_MEMORY", f"{resources.private_memory() + used // 2} B")
        with pytest.raises(NotEnoughMemory), watch_memory():
            time.sleep(30)
    finally:
        worker.end()
    assert list_worker_ids() == ()


def test_the_user_can_still_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOSTFLOPS_MEMORY", "1000GB")
    with pytest.raises(KeyboardInterrupt), watch_memory():
        raise KeyboardInterrupt


def test_the_limit_is_a_share_of_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOSTFLOPS_MEMORY", raising=False)
    monkeypatch.setattr(memory_limit, "free_memory", lambda: 2_000_000_000)
    memory_limit._limit.cache_clear()
    try:
        assert memory_limit.limit_memory() == 1_600_000_000
        assert memory_limit.limit_database() == "800000000B"
        assert memory_limit.limit_workers() == 2
        assert "80% of what was free when it began" in str(memory_limit.not_enough_memory())
    finally:
        memory_limit._limit.cache_clear()


def test_a_small_limit_means_few_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lostflops.store.spread.engines.count_cores", lambda: 64)
    monkeypatch.delenv("LOSTFLOPS_WORKERS", raising=False)
    monkeypatch.setenv("LOSTFLOPS_MEMORY", "100MB")
    assert (ChosenEngine().workers, ChosenEngine(asked=9).workers) == (1, 9)
    monkeypatch.setenv("LOSTFLOPS_MEMORY", "4GiB")
    assert ChosenEngine().workers == 8
    monkeypatch.setenv("LOSTFLOPS_WORKERS", "3")
    assert (ChosenEngine().workers, ChosenEngine(asked=9).workers) == (3, 9)


def test_a_limit_that_is_no_size_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOSTFLOPS_MEMORY", "lots")
    with pytest.raises(UsageError, match="LOSTFLOPS_MEMORY: "):
        memory_limit.limit_memory()


def test_a_query_beyond_the_share_of_the_database_is_the_same_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(SyntheticCluster(ranks=1, steps=1).generate(), tmp_path / "run")
    monkeypatch.setenv("LOSTFLOPS_MEMORY", "100MB")
    with Run.open(tmp_path / "run") as run, pytest.raises(NotEnoughMemory):
        run.rows("SELECT list(repeat('x', 1000) || range) FROM range(1000000)")
