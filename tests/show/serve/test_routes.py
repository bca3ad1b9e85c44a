"""What a live page is told is what the command line tells."""

import asyncio
import gzip
import shutil
import tempfile
import threading
import time
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from lostflops.core.results import Result
from lostflops.show.export.perfetto import write_perfetto
from lostflops.show.pages.page import QUESTIONS, page_of
from lostflops.show.report.view import View
from lostflops.show.serve import live as lives
from lostflops.show.serve import routes
from lostflops.show.serve.guard import HEADERS
from lostflops.show.serve.live import LivePage
from lostflops.show.serve.work import Stopped, Workers
from lostflops.store.run import Run

from .conftest import GOOD, Server, unpacked

NAMES = [question.__name__.strip("_") for question in QUESTIONS]


def test_questions_are_those_of_the_page(server: Server) -> None:
    said = server.ask("GET", "/api/questions").json()
    assert said["questions"] == NAMES
    assert "comm.wait" in said["page"]["glossary"]
    assert {"events", "steps"} <= {table["name"] for table in said["tables"]}


def plain(result: dict[str, Any]) -> dict[str, Any]:
    """Events of a timeline come in no order, and so do their names."""
    return {**result, "blocks": [{**block, "events": None} for block in result["blocks"]]}


@pytest.mark.parametrize("name", NAMES)
def test_a_result_is_that_of_the_file(server: Server, run_folder: Path, name: str) -> None:
    given = unpacked(server.ask("GET", f"/api/result?name={name}"))
    with Run.open(run_folder) as run:
        page = page_of(run, [QUESTIONS[NAMES.index(name)]])
    assert [plain(one) for one in given["results"]] == [plain(one) for one in View().page(page)["results"]]
    assert given["missing"] == [list(one) for one in page.missing]


@pytest.mark.parametrize("name", ["", "levitate", "__init__", "_report", "../report"])
def test_a_name_that_is_no_question_is_refused(server: Server, name: str) -> None:
    answer = server.ask("GET", "/api/result", params={"name": name})
    assert (answer.status_code, answer.json()["error"][:21]) == (422, "no view has this name")


def test_a_question_is_asked_once_however_many_wait(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def slow(run: Run) -> Result:
        asked.append(run.ranks)
        time.sleep(0.1)
        return Result("slow", "Slow", "At last.")

    monkeypatch.setitem(routes._QUESTIONS, "slow", slow)

    async def three(client):
        return await asyncio.gather(*(client.get("/api/result?name=slow", headers=GOOD) for _ in range(3)))

    answers = server.together(three)
    assert [answer.status_code for answer in answers] == [200] * 3
    assert len({answer.content for answer in answers}) == 1
    server.ask("GET", "/api/result?name=slow")
    assert asked == [(0, 1)]


def test_events_of_a_window(server: Server, run_folder: Path) -> None:
    all_of_it = unpacked(server.ask("GET", f"/api/events?ranks=0,1&start=0&stop={10**15}&most=50000"))
    with Run.open(run_folder) as run:
        [(events,)] = run.sql("select count(*) from events where kind != 'span'").fetchall()
    shown = sum(lane[2] for lane in all_of_it["lanes"])
    assert shown + all_of_it["left_out"] == events
    few = unpacked(server.ask("GET", f"/api/events?ranks=0&start=0&stop={10**15}&most=5"))
    assert sum(lane[2] for lane in few["lanes"]) == 5
    for most in (0, -7):
        none = unpacked(server.ask("GET", f"/api/events?ranks=0,1&start=0&stop={10**15}&most={most}"))
        assert (none["lanes"], none["left_out"]) == ([], events)


@pytest.mark.parametrize(
    "changed", [{"ranks": "x"}, {"ranks": "0;1"}, {"start": "1e9"}, {"stop": "²"}, {"most": "9" * 30}, {"ranks": "77"}]
)
def test_windows_that_make_no_sense_are_refused(server: Server, changed: dict[str, str]) -> None:
    asked = {"ranks": "0", "start": "0", "stop": "1000", "most": "10", **changed}
    assert server.ask("GET", "/api/events", params=asked).status_code == 422


def test_a_what_if_without_changes_is_the_measured_step(server: Server) -> None:
    now = server.ask("POST", "/api/whatif", json={"changes": []}).json()
    assert sum(ns for _, ns in now["lines"]) == now["predicted_ns"]
    wrong = server.ask("POST", "/api/whatif", json={"changes": [["levitate", "1"]]}).json()
    assert wrong["predicted_ns"] is None
    assert "levitate" in wrong["why_not"]


@pytest.mark.parametrize("changes", [None, "x", [["a"]], [["a", 1]], [["a", "b", "c"]], [["a", "b"]] * 17])
def test_what_is_no_list_of_changes_is_refused(server: Server, changes: object) -> None:
    assert server.ask("POST", "/api/whatif", json={"changes": changes}).status_code == 422


def test_a_run_that_is_written_anew_is_answered_anew(run_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run_folder, folder)
    live = LivePage(folder)
    server = Server(live)
    first = server.ask("GET", "/api/result?name=trust")
    (folder / "run.json.new").write_bytes((folder / "run.json").read_bytes())
    (folder / "run.json.new").replace(folder / "run.json")
    second = server.ask("GET", "/api/result?name=trust")
    assert first.headers["Lostflops-Run"] != second.headers["Lostflops-Run"]
    assert first.content == second.content
    assert live.close()


def test_a_run_that_is_gone_is_told_and_found_again(run_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run_folder, folder)
    live = LivePage(folder)
    server = Server(live)
    folder.rename(tmp_path / "elsewhere")
    for path in ("/api/alive", "/api/questions", "/api/result?name=trust"):
        answer = server.ask("GET", path)
        assert (answer.status_code, "is not a run" in answer.json()["error"]) == (422, True), path
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    (tmp_path / "elsewhere").rename(folder)
    assert server.ask("GET", "/api/alive").status_code == 200
    assert live.close()


def test_a_bug_is_not_shown_to_the_page(server: Server, monkeypatch, capsys) -> None:
    async def broken(*_):
        raise RuntimeError("a secret of the inside")

    monkeypatch.setattr(server.live, "try_changes", broken)
    answer = server.ask("POST", "/api/whatif", json={"changes": []})
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "a secret of the inside" in capsys.readouterr().err


def test_slow_work_is_ended(server: Server) -> None:
    seen: list[type[BaseException]] = []

    def endless(run: Run) -> None:
        try:
            run.sql("select count(*) from range(100000000000) a").fetchall()
        except BaseException as error:
            seen.append(type(error))
            raise

    workers = Workers(1)
    began = time.monotonic()
    with pytest.raises(Stopped, match=r"after 0\.2 s"):
        asyncio.run(workers.answer(server.live._run.beside(), endless, 0.2))
    assert workers.close(2)
    assert time.monotonic() - began < 2
    assert [error.__name__ for error in seen] == ["InterruptException"]


def test_work_that_was_stopped_asks_no_more(server: Server) -> None:
    run = server.live._run.beside()
    assert run.rows("select 2") == [(2,)]
    run.stop()
    for ask in (run.sql, run.rows, run.columns):
        with pytest.raises(Stopped):
            ask("select 1")


def test_work_that_ended_by_itself_can_be_stopped(server: Server) -> None:
    run = server.live._run.beside()
    run.close()
    run.stop()
    assert run.stopped


def test_queries_that_take_their_threads_leave_the_timeline_alone(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = threading.Event()
    monkeypatch.setattr(lives, "run_query", lambda _run, _query: free.wait(20))

    async def asked(client):
        body = {"query": "select 1"}
        queries = [asyncio.ensure_future(client.post("/api/sql", headers=GOOD, json=body)) for _ in range(4)]
        await asyncio.sleep(0.1)
        try:
            return await asyncio.wait_for(client.get("/api/events?ranks=0&start=0&stop=9&most=1", headers=GOOD), 10)
        finally:
            free.set()
            await asyncio.wait(queries)

    assert server.together(asked).status_code == 200


def test_more_than_can_wait_is_refused(server: Server) -> None:
    free = threading.Event()
    workers = Workers(1, waiting=1)

    async def three() -> list[object]:
        jobs = [workers.answer(server.live._run.beside(), lambda _: free.wait(5), 5) for _ in range(3)]
        tasks = []
        for job in jobs:
            tasks.append(asyncio.create_task(job))
            await asyncio.sleep(0.05)
        free.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, second, third = asyncio.run(three())
    assert (first, second, type(third)) == (True, True, Stopped)
    assert workers.close()


def test_the_trace_for_perfetto_is_that_of_the_export(server: Server, run_folder: Path) -> None:
    made = BytesIO()
    with Run.open(run_folder) as run:
        write_perfetto(run, made)
    answer = server.ask("GET", "/api/perfetto")
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert gzip.decompress(answer.content) == made.getvalue()
    assert not list(Path(tempfile.gettempdir()).glob("lostflops-*/trace.gz"))
