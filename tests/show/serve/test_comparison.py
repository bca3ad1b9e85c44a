"""A live page with a second run: the same comparison as the file, and nothing else changes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lostflops.show.pages.comparison import comparison_page
from lostflops.show.pages.page import TITLES
from lostflops.show.report.view import View
from lostflops.show.serve.live import LivePage
from lostflops.show.serve.sections import COMPARED, GROUPS
from lostflops.show.serve.work import StoppableRun, Stopped
from lostflops.testing import Straggler, SyntheticCluster, store

from .conftest import Server, unpacked

LATE = SyntheticCluster(ranks=2, steps=3, first_step=0, stragglers=(Straggler(1, "slow_kernels", factor=2),))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store(LATE.generate(), tmp_path_factory.mktemp("other") / "late")


@pytest.fixture(scope="module")
def both(run_folder: Path, other: Path) -> Iterator[Server]:
    live = LivePage(run_folder, other)
    yield Server(live)
    assert live.close()


def test_its_sections_come_after_those_of_the_first_run(both: Server, run_folder: Path) -> None:
    said = both.ask("GET", "/api/questions").json()
    assert [name for name, _ in said["sections"]] == [*TITLES, *COMPARED]
    assert [group["name"] for group in said["groups"]] == [*(group.name for group in GROUPS), "comparison"]
    assert said["page"]["title"] == f"{run_folder.name} and late"


def test_the_comparison_is_that_of_the_file(both: Server, run_folder: Path, other: Path) -> None:
    given = unpacked(both.ask("GET", "/api/result?name=comparison"))
    page = View().page(comparison_page([run_folder], [other]))
    assert [one["name"] for one in given["results"]] == list(COMPARED)
    wanted = [one for one in page["results"] if one["name"] in COMPARED]
    for one, two in zip(given["results"], wanted, strict=True):
        assert one["verdict"] == two["verdict"]
        assert [{**block, "events": None} for block in one["blocks"]] == [
            {**block, "events": None} for block in two["blocks"]
        ]


def test_sql_stays_about_the_first_run(both: Server, server: Server) -> None:
    query = "select sum(dur) from events"
    assert unpacked(both.sql(query))["results"] == unpacked(server.sql(query))["results"]


def test_without_a_second_run_there_is_nothing_to_compare(server: Server) -> None:
    answer = server.ask("GET", "/api/result?name=comparison")
    assert answer.status_code == 422
    assert "no second run" in answer.json()["error"]
    assert "comparison" not in {group["name"] for group in server.ask("GET", "/api/questions").json()["groups"]}


def test_the_same_run_twice_is_explained(run_folder: Path) -> None:
    live = LivePage(run_folder, run_folder)
    answer = Server(live).ask("GET", "/api/result?name=comparison")
    assert live.close()
    assert answer.status_code == 422
    assert "same recording" in answer.json()["error"]


def test_a_second_run_that_was_written_again_is_compared_again(run_folder: Path, other: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(other, copy)
    live = LivePage(run_folder, copy)
    served = Server(live)
    first = served.ask("GET", "/api/result?name=comparison")
    shutil.rmtree(copy)
    store(SyntheticCluster(ranks=2, steps=3, first_step=0, seed=9).generate(), copy)
    second = served.ask("GET", "/api/result?name=comparison")
    assert live.close()
    assert first.headers["Lostflops-Run"] != second.headers["Lostflops-Run"]
    verdicts = [unpacked(answer)["results"][0]["verdict"] for answer in (first, second)]
    assert verdicts[0].startswith("B is slower")
    assert verdicts[0] != verdicts[1]


def test_both_runs_stop_together(run_folder: Path, other: Path) -> None:
    with StoppableRun.open(run_folder) as first, StoppableRun.open(other) as second:
        assert first.stop_too(second) is second
        assert second.rows("select 1") == [(1,)]
        first.stop()
        with pytest.raises(Stopped):
            second.rows("select 2")
        with second.beside() as late, pytest.raises(Stopped):
            first.stop_too(late).rows("select 3")
