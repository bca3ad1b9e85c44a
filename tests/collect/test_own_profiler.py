"""A job that runs torch.profiler itself: where it wrote its traces is recorded, and the reader gets the command."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import duckdb
import pytest

from lostflops.explain.advise.own_traces import own_traces

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
if find_spec("torch") is not None:
    import torch
    from torch.profiler.profiler import _KinetoProfile

    from lostflops.collect.other_profilers import OtherProfilers, _Profile


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> OtherProfilers:
    for kind, name in ((_Profile, "_prepare_trace"), (_Profile, "__exit__"), (_KinetoProfile, "export_chrome_trace")):
        monkeypatch.setattr(kind, name, getattr(kind, name))  # as it was when the test ends
    return OtherProfilers()


def test_nothing_is_recorded_of_a_job_without_a_profiler(others: OtherProfilers) -> None:
    assert others.record is None


@pytest.mark.parametrize("use_gzip", [False, True])
def test_the_folder_of_tensorboard_traces(others: OtherProfilers, tmp_path: Path, use_gzip: bool) -> None:
    handler = torch.profiler.tensorboard_trace_handler(str(tmp_path / "tb"), use_gzip=use_gzip)
    for _ in range(2):
        with torch.profiler.profile(on_trace_ready=handler):
            torch.ones(2).sum()
    assert others.record == {"begun": 2, "folders": [str(tmp_path / "tb")]}


def test_a_relative_path_is_kept_as_a_whole_one(
    others: OtherProfilers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with torch.profiler.profile() as own:
        torch.ones(2).sum()
    own.export_chrome_trace("trace.json")
    assert others.record == {"begun": 1, "folders": [str(tmp_path)]}


class _Run:
    """A run that holds table `job` alone."""

    path = Path("run")

    def __init__(self, *values: dict[str, object]) -> None:
        self._database = duckdb.connect()
        self._database.execute("create table job (rank int, attempt int, key varchar, value varchar)")
        for rank, value in enumerate(values):
            self._database.execute("insert into job values (?, 0, 'own_profiler', ?)", [rank, json.dumps(value)])

    def rows(self, query: str) -> list[tuple[object, ...]]:
        return self._database.execute(query).fetchall()


def test_the_command_reads_the_folder() -> None:
    own = {"begun": 1, "folders": ["/logs/my run"]}
    assert own_traces(_Run(own, own)).endswith("lostflops ingest '/logs/my run' -o run-own-traces")  # type: ignore[arg-type]


def test_a_folder_that_is_unknown_is_left_to_the_reader() -> None:
    assert "lostflops ingest FOLDER_OF_ITS_TRACES" in own_traces(_Run({"begun": 1, "folders": []}))  # type: ignore[arg-type]


def test_silent_where_the_job_ran_no_profiler() -> None:
    assert own_traces(_Run()) == ""  # type: ignore[arg-type]
