import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "out"


def test_demo_shows_a_run_of_eight_ranks(lostflops, folder: Path) -> None:
    outcome = lostflops("demo", "--out", folder, "--no-browser")
    assert outcome.code == 0, outcome.err
    assert len(outcome.out.splitlines()) <= 20
    assert "Rank 4 is late" in " ".join(outcome.out.split())
    own = "Or: lostflops run -- torchrun --nproc-per-node 2 train.py"
    assert outcome.out.splitlines()[-2:] == [f"Next: lostflops diagnose {folder}", own]
    assert len(list((folder / "capture").glob("*.json.gz"))) == 8
    assert f"Wrote {folder}/report.html" in " ".join(outcome.out.split())
    assert (folder / "report.html").read_text("utf-8").startswith("<!doctype html>")


@pytest.mark.slow
def test_the_demo_has_something_to_show_in_every_view(lostflops, folder: Path) -> None:
    def told(verb: str) -> dict[str, Any]:
        return json.loads(lostflops(verb, folder, "--json").out)

    pipeline = told("pipeline")["bubble"]
    assert (pipeline["stages"], pipeline["microbatches"], pipeline["inherent"]) == (2, 4, pytest.approx(0.2))
    owners = {row["owner"] for row in told("memory")["owners"]}
    assert {"parameters", "optimizer_state", "activations", "gradients"} <= owners
    assert told("flame")["functions"][0]["place"] == "dataset.py:18"
    assert [row["rank"] for row in told("ranks")["stragglers"]] == [4]
    assert [row["step"] for row in told("steps")["steps"] if row["mark"] == "slow"] == [4]


@pytest.mark.slow
def test_the_page_is_opened_once_unless_told_not_to(lostflops, tmp_path: Path, monkeypatch) -> None:
    taken: list[str] = []
    monkeypatch.setenv("BROWSER", "made")
    monkeypatch.setattr("webbrowser.open", lambda address: taken.append(address) or True)
    for name, words in (("silent", ("--no-browser",)), ("shown", ())):
        assert lostflops("demo", "--out", tmp_path / name, "--ranks", "2", *words).code == 0
    assert taken == [(tmp_path / "shown" / "report.html").as_uri()]


@pytest.mark.slow
def test_the_planted_straggler_is_in_the_data(lostflops, tmp_path: Path, monkeypatch) -> None:
    taken: list[str] = []
    monkeypatch.setattr("webbrowser.open", taken.append)
    told = lostflops("demo", "--out", tmp_path / "out", "--ranks", "4", "--json")
    assert taken == []
    assert json.loads(told.out)["bytes"] == (tmp_path / "out" / "report.html").stat().st_size
    query = "select rank from events where kind = 'kernel' group by rank order by sum(dur) desc limit 1"
    answer = lostflops("sql", tmp_path / "out", query, "--json")
    assert json.loads(answer.out)["rows"] == [{"rank": 2}]


def test_demo_overwrites_nothing(lostflops, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    outcome = lostflops("demo", "--out", tmp_path)
    assert outcome.code == 2
    assert "already exists" in outcome.err
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]
