"""A command that needs more memory than it may use says so, and ends before the machine is in trouble."""

import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from lostflops.cli.memory_watch import watch_memory
from lostflops.core.errors import NotEnoughMemory, UsageError
from lostflops.ingest import ingest
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
    assert ended.stdout.startswith("stopped, because this command needs more than its memory limit of 400 MB")
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
    assert ended.stderr.startswith(
        "lostflops: stopped, because this command needs more than its memory limit of 400 MB"
    )


def test_workers_count() -> None:
    ended = take(
        """
            from lostflops.store.spread.worker_process import WorkerProcess
            held.extend(WorkerProcess() for _ in range(8))
            time.sleep(30)
""",
        "150MB",
    )
    assert ended.returncode == 70


def test_an_interrupt_that_the_command_takes_for_the_users_is_still_told() -> None:
    ended = take(
        """
            try:
                held.append(np.ones(1 << 17))
                time.sleep(0.002)
            except KeyboardInterrupt:
                break
""",
        "100MB",
    )
    assert ended.returncode == 70


def test_ended_workers_do_not_count() -> None:
    worker = WorkerProcess()
    assert len(list_worker_ids()) == 1
    worker.end()
    assert list_worker_ids() == ()


def test_run_ends_with_the_code_of_its_command_also_if_it_is_ended_by_force(tmp_path: Path) -> None:
    program = """
import os, sys
from lostflops.cli.verbs import run
run._conclude = lambda *_, **__: [bytearray(b"x" * (1 << 24)) for _ in iter(int, 1)]  # until it is ended
run._is_made = lambda _: True
sys.argv = ["lostflops", "run", "-o", sys.argv[1], "--", sys.executable, "-c", "raise SystemExit(9)"]
from lostflops.cli.main import main
main()
"""
    environment = {**os.environ, "LOSTFLOPS_MEMORY": "300MB", "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", program, str(tmp_path / "run")]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 9
    assert "no summary: stopped, because" in ended.stderr
    assert "The recording is kept; to read it: lostflops ingest" in ended.stderr


def test_run_ends_with_the_code_of_its_command_if_a_fleet_needs_too_much_memory(tmp_path: Path) -> None:
    program = """
import os, sys
import lostflops.api
from pathlib import Path
from lostflops.cli.verbs import run
lostflops.api.add_to_fleet = lambda *_, **__: [bytearray(b"x" * (1 << 24)) for _ in iter(int, 1)]  # until it is ended
run._add_to_fleet("fleet", Path("run"), 9 << 8)
run._leave_as(9 << 8)
"""
    environment = {**os.environ, "LOSTFLOPS_MEMORY": "300MB", "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 9
    assert "the run was not added to fleet: stopped, because" in ended.stderr
    assert ended.stderr.endswith("To try again: lostflops fleet add fleet run\n")


def test_sql_beyond_the_limit_has_the_same_exit_code(tmp_path: Path) -> None:
    store(SyntheticCluster(ranks=1, steps=1).generate(), tmp_path / "run")
    query = "SELECT length(list(repeat('x', 1000) || range)::varchar) FROM range(1000000)"
    environment = {**os.environ, "LOSTFLOPS_MEMORY": "100MB", "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-m", "lostflops", "sql", str(tmp_path / "run"), query]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == NotEnoughMemory.exit_code
    assert "LOSTFLOPS_MEMORY" in ended.stderr


def test_memory_of_the_database_is_not_blamed_on_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SyntheticCluster(ranks=2, steps=1).generate().traces.write(tmp_path / "traces")

    def join(*_: object, **__: object) -> None:
        raise duckdb.OutOfMemoryException("Out of Memory Error")

    monkeypatch.setattr(sys.modules["lostflops.ingest.ingest"], "align_ranks", join)
    with pytest.raises(NotEnoughMemory):
        ingest([tmp_path / "traces"], tmp_path / "run", workers=1)
    assert not (tmp_path / "run/run.json").exists()


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
        assert "80% of the memory that was free at its start" in str(memory_limit.not_enough_memory())
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


@pytest.mark.parametrize("stated", ["lots", "0 GB", "-1GB", "8"])
def test_a_limit_that_is_no_size_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch, stated: str) -> None:
    monkeypatch.setenv("LOSTFLOPS_MEMORY", stated)
    with pytest.raises(UsageError, match=r"LOSTFLOPS_MEMORY='.*' is not a size"):
        memory_limit.limit_memory()


def test_units_may_be_those_of_schedulers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOSTFLOPS_MEMORY", "8G")
    assert memory_limit.limit_memory() == 8_000_000_000


def test_a_query_beyond_the_share_of_the_database_is_the_same_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(SyntheticCluster(ranks=1, steps=1).generate(), tmp_path / "run")
    monkeypatch.setenv("LOSTFLOPS_MEMORY", "100MB")
    with Run.open(tmp_path / "run") as run, pytest.raises(NotEnoughMemory):
        run.rows("SELECT list(repeat('x', 1000) || range) FROM range(1000000)")
