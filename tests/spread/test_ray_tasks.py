"""Ray as the engine of ingest: the same run as by processes, and no open cluster is used."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from lostflops.errors import UsageError
from lostflops.ingest import ingest
from lostflops.spread.names import EngineName
from lostflops.spread.ray_tasks import ray_tasks, refuse_open
from lostflops.store.run import Run
from lostflops.store.tables import TABLES
from lostflops.testing import SyntheticCluster

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")


@pytest.mark.parametrize("address", ["10.1.2.3:6379", "ray://head.example:10001", "auto", "[2001:db8::1]:6379"])
def test_a_cluster_that_others_reach_must_ask_for_a_token(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(UsageError, match=r"asks for no token.*RAY_AUTH_MODE=token"):
        refuse_open(address)
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(UsageError, match=r"not installed|asks for no token"), ray_tasks(1):
        pass
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    refuse_open(address)


@needs_ray
@pytest.mark.slow
def test_ray_makes_the_run_that_processes_make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    traces = SyntheticCluster(ranks=6, steps=3).generate().traces.write(tmp_path / "traces")
    done = {name: ingest(traces, tmp_path / name, workers=2, engine=name) for name in EngineName}
    assert done[EngineName.RAY].events == done[EngineName.LOCAL].events > 0
    with Run.open(tmp_path / "ray") as ray, Run.open(tmp_path / "local") as local:
        for table in TABLES:
            rows = f"select * from {table.name} order by all"
            assert ray.sql(rows).fetchall() == local.sql(rows).fetchall(), table.name
