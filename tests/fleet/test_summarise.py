"""The summary of a run has the figures that its verbs show, and is stored once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

import lostflops as lf
from lostflops.core.errors import BrokenRun
from lostflops.fleet.summarise import summarise, summary_of
from lostflops.fleet.summary import RunSummary, check_summary
from lostflops.ingest import ingest
from lostflops.store.derived import add_tables, data_digest
from lostflops.store.run import Run
from lostflops.store.tables import SUMMARY
from lostflops.testing import Straggler, SyntheticCluster
from made_captures import MS, end, frames, session, step, write
from made_timed_runs import recorded


def make_cluster(folder: Path, *stragglers: Straggler) -> Path:
    cluster = SyntheticCluster(ranks=8, ranks_per_host=2, steps=6, stragglers=stragglers)
    cluster.generate().traces.write(folder / "traces", host_names=True)
    ingest([folder / "traces"], folder / "run", workers=1)
    return folder / "run"


def test_a_slow_host_is_slower_by_what_was_planted(tmp_path: Path) -> None:
    """One of the two ranks of the third host has kernels that take 1.4 times as long: the host needs 20% more."""
    slow = make_cluster(tmp_path, Straggler(4, "slow_kernels", factor=1.4))
    with lf.open(slow) as run:
        made = summarise(run.stored)
        report = run.report().to_json()
        lines = run.sql(
            "select line, sum(ns)::bigint from ledger where split = 'line' and ns > 0 group by 1"
        ).fetchall()
    assert len(made.hosts) == 4
    by_host = {host.host: host for host in made.hosts}
    slowest = max(made.hosts, key=lambda host: host.slower or 0)
    assert slowest is list(by_host.values())[2]
    assert slowest.slower == pytest.approx(0.2, abs=0.04)
    assert all(abs(host.slower or 0) < 0.02 for host in made.hosts if host is not slowest)
    assert dict(lines) == made.lines
    assert made.window_ns == sum(made.lines.values())
    assert made.findings[0].id == "straggler:4"
    assert made.findings[0].gain == report["findings"][0]["saving"]["value"]


def test_a_run_on_one_host_compares_no_hosts(tmp_path: Path) -> None:
    cluster = SyntheticCluster(ranks=2, ranks_per_host=2, steps=4)
    cluster.generate().traces.write(tmp_path / "traces", host_names=True)
    ingest([tmp_path / "traces"], tmp_path / "run", workers=1)
    with lf.open(tmp_path / "run") as run:
        assert [host.slower for host in summarise(run.stored).hosts] == [None]


def test_a_run_without_a_window_has_its_pace(tmp_path: Path) -> None:
    """200 steps of 100 ms, of which the last 100 take 120 ms."""
    folder = recorded(tmp_path / "run", [100.0] * 100 + [120.0] * 100, world=2)
    with lf.open(folder) as run:
        made = summarise(run.stored)
    assert (made.ranks, made.steps, made.window_ns) == (2, 201, 0)
    assert len(made.pace) == 64
    assert sum(part.steps for part in made.pace) == 201
    assert [part.step_ns for part in (made.pace[1], made.pace[-1])] == [100e6, 120e6]
    assert made.name == "train.py"
    assert [part.start for part in made.pace] == sorted(part.start for part in made.pace)


def test_a_summary_is_stored_and_follows_the_run(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "run", [100.0] * 20)
    with lf.open(folder) as run:
        first = summary_of(run.stored)
    folder.rename(tmp_path / "moved")
    with lf.open(tmp_path / "moved") as run:
        assert run.stored.manifest.files["summary"]
        moved = summary_of(run.stored)
    assert moved.address == str(tmp_path / "moved")
    assert moved.run == first.run
    check_summary(moved)


@pytest.mark.parametrize("key", ["labels", "script", "commit", "torch"])
@pytest.mark.parametrize("value", [7, "x", [1], {"job": {"a": [1]}}])
def test_facts_of_a_strange_type_are_text_or_nothing(tmp_path: Path, key: str, value: Any) -> None:
    """A capture may come from anybody."""
    fact = {"kind": "job", "key": key, "value": value}
    steps = [step(number, number * 100 * MS, (0, 0, 0, 0, 100 * MS)) for number in range(3)]
    write(tmp_path / "capture", 0, frames(0, "a", [session(0, 1), fact, *steps, end(400 * MS)]))
    lf.ingest([tmp_path / "capture"], tmp_path / "run")
    with lf.open(tmp_path / "run") as run:
        made = summarise(run.stored)
    assert msgspec.json.decode(msgspec.json.encode(made), type=RunSummary) == made


def test_a_run_whose_times_contradict_each_other_is_an_error_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = recorded(tmp_path / "run", [100.0] * 20)
    monkeypatch.setattr("lostflops.fleet.summarise.life_of", lambda _: Counter({"training": 2, "unknown": -1}))
    with lf.open(folder) as run, pytest.raises(BrokenRun, match="a time is negative"):
        summarise(run.stored)


def test_a_run_is_ingested_even_if_its_summary_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(tmp_path / "made", [100.0] * 20)
    monkeypatch.setattr("lostflops.fleet.summarise.life_of", lambda _: 1 / 0)
    lf.ingest([tmp_path / "made" / "capture"], tmp_path / "run")
    with lf.open(tmp_path / "run") as run:
        assert "summary" not in run.stored.manifest.files


@pytest.mark.parametrize("document", [None, "", "[]", '{"run": 1}', "[" * 100_000, '{"life": {}}'])
def test_a_stored_summary_that_was_changed_is_made_again(tmp_path: Path, document: str | None) -> None:
    folder = recorded(tmp_path / "run", [100.0] * 20)
    with lf.open(folder) as run:
        made = summary_of(run.stored)
    with Run.open(folder) as stored:
        [(code,)] = stored.rows("select code from summary")
        changed = {"code": [code], "document": [document]}
        assert add_tables(folder, data_digest(stored.manifest), {SUMMARY: changed})
    with Run.open(folder) as again:
        assert summary_of(again) == made


def test_ingest_leaves_a_summary(tmp_path: Path) -> None:
    recorded(tmp_path / "made", [100.0] * 20)
    lf.ingest([tmp_path / "made" / "capture"], tmp_path / "run")
    with lf.open(tmp_path / "run") as run:
        assert run.sql("select count(*) from summary").fetchall() == [(1,)]
