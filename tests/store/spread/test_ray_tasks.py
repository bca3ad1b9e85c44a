"""Ray as the engine of ingest: the same run as by processes, and no open cluster is used."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from lostflops.core.errors import UsageError
from lostflops.ingest import ingest
from lostflops.store.run import Run
from lostflops.store.spread.names import EngineName
from lostflops.store.spread.ray_tasks import ray_tasks, refuse_open
from lostflops.store.tables import TABLES
from lostflops.testing import SyntheticCluster

if TYPE_CHECKING:
    from made_store import ObjectStore

ends_by_itself = pytest.mark.filterwarnings("ignore:.*subprocess:pytest.PytestUnraisableExceptionWarning")
"""Ray does not wait for processes of its own, which a second cluster in this process then shows."""
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")


@pytest.mark.parametrize("address", ["10.1.2.3:6379", "ray://head.example:10001", "auto", "[2001:db8::1]:6379"])
def test_a_cluster_that_others_reach_must_ask_for_a_token(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(UsageError, match=r"requires no token.*RAY_AUTH_MODE=token"):
        refuse_open(address)
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(UsageError, match=r"not installed|requires no token"), ray_tasks(1):
        pass
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    refuse_open(address)


def test_what_is_no_address_is_refused_in_words() -> None:
    with pytest.raises(UsageError, match="not an address"):
        refuse_open("[10.1.2.3:6379")


class Cluster(ModuleType):
    """Stands in for Ray, with a cluster that others reach."""

    exceptions = SimpleNamespace(RayTaskError=RuntimeError)

    def __init__(self, *, asks: bool | None) -> None:
        super().__init__("ray")
        self.asks, self.modes, self.ended = asks, list[str | None](), False

    def init(self, **_: object) -> None:
        self.modes.append(os.environ.get("RAY_AUTH_MODE"))

    def nodes(self) -> list[dict[str, str]]:
        return [{"NodeManagerAddress": "10.1.2.3"}]

    def remote(self, function: Any = None, **_: object) -> Any:
        return SimpleNamespace(remote=lambda: function.__name__) if function else lambda function: function

    def get(self, name: str) -> bool:
        assert name == "asks_for_token"
        if self.asks is None:
            raise RuntimeError("Traceback:\n  ...\nModuleNotFoundError: No module named 'lostflops'")
        return self.asks

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 1.0}

    def shutdown(self) -> None:
        self.ended = True


@pytest.mark.parametrize("asks", [False, True])
def test_a_token_that_nobody_looks_at_is_none(asks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(asks=asks)
    monkeypatch.setitem(sys.modules, "ray", cluster)
    monkeypatch.setenv("RAY_ADDRESS", "10.1.2.3:6379")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    with nullcontext() if asks else pytest.raises(UsageError, match="requires no token"), ray_tasks(1):
        assert asks
    assert cluster.ended


def test_a_cluster_without_lostflops_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", Cluster(asks=None))
    monkeypatch.setenv("RAY_ADDRESS", "10.1.2.3:6379")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    with pytest.raises(UsageError, match=r"install it there: ModuleNotFoundError"), ray_tasks(1):
        pass


@pytest.mark.parametrize("mode", [None, "disabled"])
def test_a_cluster_that_is_started_here_asks_for_a_token(mode: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(asks=True)
    monkeypatch.setitem(sys.modules, "ray", cluster)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    if mode:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    with ray_tasks(1):
        pass
    assert cluster.modes == ["token"]
    assert os.environ.get("RAY_AUTH_MODE") == mode


@needs_ray
@ends_by_itself
@pytest.mark.slow
def test_ray_makes_the_run_that_processes_make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    traces = SyntheticCluster(ranks=6, steps=3).generate().traces.write(tmp_path / "traces")
    done = {name: ingest(traces, tmp_path / name, workers=2, engine=name) for name in EngineName}
    assert done[EngineName.RAY].events == done[EngineName.LOCAL].events > 0
    assert same(tmp_path / "ray", tmp_path / "local")


def same(one: str | Path, other: str | Path) -> bool:
    with Run.open(one) as ours, Run.open(other) as theirs:
        for table in TABLES:
            rows = f"select * {'exclude (source)' if table.name == 'ranks' else ''} from {table.name} order by all"
            assert ours.sql(rows).fetchall() == theirs.sql(rows).fetchall(), table.name
    return True


def killed_at_work() -> int:
    """Kill one worker of this process' own cluster that is at work, as soon as there is one; 0 after a minute."""
    for _ in range(3000):
        parents: dict[int, int] = {}
        titles: dict[int, bytes] = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, ValueError):
                pid = int(folder.name)
                parents[pid] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                titles[pid] = (folder / "cmdline").read_bytes()
        for pid, title in titles.items():
            above = pid
            while above in parents and above != os.getpid():
                above = parents[above]
            if above == os.getpid() and title.startswith(b"ray::_answer_order"):
                os.kill(pid, signal.SIGKILL)
                return pid
        time.sleep(0.02)
    return 0


@needs_ray
@ends_by_itself
@pytest.mark.slow
def test_a_ray_worker_that_is_killed_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    traces = SyntheticCluster(ranks=4, steps=40).generate().traces.write(tmp_path / "traces")
    with ThreadPoolExecutor(1) as beside:
        killed = beside.submit(killed_at_work)
        done = ingest(traces, tmp_path / "ray", workers=2, engine=EngineName.RAY)
        assert killed.result()
    assert done.ranks_added == (0, 1, 2, 3)
    ingest(traces, tmp_path / "local", workers=1)
    assert same(tmp_path / "ray", tmp_path / "local")


@needs_ray
@ends_by_itself
@pytest.mark.slow
def test_ray_reads_from_a_store_and_writes_to_it(
    tmp_path: Path, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    files = SyntheticCluster(ranks=6, steps=3).generate().traces.write(tmp_path / "traces")
    traces, run = object_store.put_all(files), object_store / "run"
    done = ingest([traces], run, workers=2, engine=EngineName.RAY)
    assert (done.ranks_added, done.bytes_read) == (tuple(range(6)), sum(file.stat().st_size for file in files))
    ingest(files, tmp_path / "local", workers=1)
    assert same(run, tmp_path / "local")
    assert ingest([traces], run, workers=2, engine=EngineName.RAY).ranks_unchanged == tuple(range(6))
