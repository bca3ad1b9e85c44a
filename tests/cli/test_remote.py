"""Verbs on a run in an object store: the answers of the same run in a folder, and commands that name the address."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lostflops.ingest import ingest
from lostflops.testing import SyntheticCluster

if TYPE_CHECKING:
    from made_store import ObjectStore


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return SyntheticCluster(ranks=2, steps=3).generate().traces.write(tmp_path_factory.mktemp("traces"))


def test_ingest_report_and_sql(lostflops, object_store: ObjectStore, cluster: list[Path], tmp_path: Path) -> None:
    traces, run = object_store.put_all(cluster), object_store / "run"
    made = lostflops("ingest", traces, "-o", run, "--workers", "1")
    assert (made.code, made.out.splitlines()[-1]) == (0, f"Next: lostflops info {run}")
    again = lostflops("ingest", traces, "-o", run, "--json")
    assert json.loads(again.out)["ingested"]["run"] == run
    assert json.loads(again.out)["ingested"]["ranks_unchanged"] == 2
    ingest(cluster, tmp_path / "run", workers=1)
    for words in (
        ["sql", "RUN", "select * from events order by all", "--json"],
        ["report", "RUN", "--json", "--no-findings"],
    ):
        stored, local = (
            lostflops(*[place if word == "RUN" else word for word in words]) for place in (run, tmp_path / "run")
        )
        assert stored.code == local.code == 0
        found, expected = json.loads(stored.out), json.loads(local.out)
        assert found.pop("next", run).endswith(run) or words[0] == "report"
        expected.pop("next", None)
        assert found == expected
    shown = lostflops("report", run)
    assert (shown.code, run in shown.out.splitlines()[-1]) == (0, True)
    assert str(tmp_path) not in shown.out
    info = json.loads(lostflops("info", run, "--json").out)
    # The ledgers were a second commit: the table of ranks of the first stays for readers that still use it.
    assert info["contents"]["disk"]["files"] == len(object_store.keys("run/data")) - 1


@pytest.mark.slow
def test_a_page_and_a_comparison(lostflops, object_store: ObjectStore, cluster: list[Path], tmp_path: Path) -> None:
    run = object_store / "run"
    ingest(cluster, run, workers=1)
    page = lostflops("open", run, "--out", str(tmp_path / "page.html"), "--no-browser")
    assert (page.code, page.out.splitlines()[-1]) == (0, f"Next: lostflops diff {run} NEW_RUN")
    assert (tmp_path / "page.html").stat().st_size > 100_000
    twice = lostflops("diff", run, run)
    assert twice.code == 2
    assert f"{run} and {run} are the same recording" in twice.err


def test_what_cannot_be_read_is_one_line(lostflops, object_store: ObjectStore) -> None:
    gone = lostflops("report", object_store / "nothing")
    assert (gone.code, gone.err.count("\n")) == (5, 1)
    assert f"{object_store / 'nothing'} is not a run" in gone.err
    nowhere = lostflops("ingest", "s3://no-such-bucket/traces", "-o", object_store / "run")
    assert (nowhere.code, nowhere.err.count("\n")) == (4, 1)
    assert "s3://no-such-bucket/traces" in nowhere.err


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--out", "s3://bucket/run", "--", "true"),
        ("demo", "--out", "s3://bucket/run", "--no-browser"),
        ("ingest", "TRACE", "-o", "gs://bucket/run"),
        ("ingest", "TRACE", "-o", "S3://bucket/run"),
    ],
)
def test_no_folder_is_called_like_a_store(
    lostflops, cluster: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    done = lostflops(*[str(cluster[0]) if word == "TRACE" else word for word in words])
    assert (done.code, list(tmp_path.iterdir())) == (2, [])
