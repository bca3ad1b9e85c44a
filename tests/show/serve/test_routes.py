"""What a live page is told is what the command line tells."""

import asyncio
import gzip
import shutil
import tempfile
import threading
import time
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from lostflops.core.results import Page, Result, Stacks
from lostflops.explain.advise import diagnose as diagnoses
from lostflops.explain.advise import diagnosis as stored
from lostflops.explain.analyze.selection import selection
from lostflops.show.export.perfetto import write_perfetto
from lostflops.show.pages.overview import overview_without_causes
from lostflops.show.pages.page import QUESTIONS, TITLES, page_of
from lostflops.show.pages.stacks import limit_stacks
from lostflops.show.report.view import View
from lostflops.show.serve import routes
from lostflops.show.serve.guard import HEADERS
from lostflops.show.serve.live import LivePage
from lostflops.show.serve.packing import pack_page
from lostflops.show.serve.sections import GROUPS, SectionGroup
from lostflops.show.serve.work import Stopped, Workers
from lostflops.store.manifest import load, save
from lostflops.store.run import Run

from .conftest import GOOD, Server, unpacked

BY_NAME = {group.name: group for group in GROUPS}


def test_sections_are_known_before_their_results(server: Server) -> None:
    said = server.ask("GET", "/api/questions").json()
    assert said["sections"] == [[name, TITLES[name]] for name in QUESTIONS]
    asked = {section for group in said["groups"] for section in group["sections"]}
    assert asked == QUESTIONS.keys()
    assert [group["name"] for group in said["groups"][:2]] == ["verdict", "timeline"]
    assert all(group["doing"] for group in said["groups"])
    assert "comm.wait" in said["page"]["glossary"]
    assert {"events", "steps"} <= {table["name"] for table in said["tables"]}


def plain(result: dict[str, Any]) -> dict[str, Any]:
    """Events of a timeline come in no order, and so do their names."""
    return {**result, "blocks": [{**block, "events": None} for block in result["blocks"]]}


def test_the_script_makes_the_main_part_of_the_page_and_the_server_none() -> None:
    assert "<main" not in routes.SHELL


def test_groups_ask_all_questions_of_the_page() -> None:
    asked = [(name, question) for group in GROUPS for name, question in group.questions.items()]
    wanted = [("overview", overview_without_causes), *QUESTIONS.items()]
    assert sorted(name for name, _ in asked) == sorted(name for name, _ in wanted)
    differ = {name for name, question in asked if (name, question) not in wanted}
    assert differ == {"timeline"}  # it may be without events, which are asked for later


def test_a_timeline_of_many_events_is_without_them(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    question = BY_NAME["timeline"].questions["timeline"]
    with Run.open(run_folder) as run:
        (few,) = question(run).blocks
        monkeypatch.setattr("lostflops.show.serve.sections._MANY_EVENTS", 0)
        (many,) = question(run).blocks
    assert few.events is not None
    assert many == replace(few, events=None)


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.few(4)
def test_a_result_is_that_of_the_file(server: Server, run_folder: Path, name: str) -> None:
    given = unpacked(server.ask("GET", f"/api/result?name={name}"))
    with Run.open(run_folder) as run:
        page = page_of(run, BY_NAME[name].questions)
    assert all(TITLES[one.name] == one.title for one in page.results)
    assert {one.name for one in page.results} <= BY_NAME[name].questions.keys()
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

    monkeypatch.setitem(routes._GROUPS, "slow", SectionGroup("slow", "Waiting", ("slow",), {"slow": slow}))

    async def three(client):
        return await asyncio.gather(*(client.get("/api/result?name=slow", headers=GOOD) for _ in range(3)))

    answers = server.together(three)
    assert [answer.status_code for answer in answers] == [200] * 3
    assert len({answer.content for answer in answers}) == 1
    server.ask("GET", "/api/result?name=slow")
    assert asked == [(0, 1)]


def test_a_page_can_see_how_far_a_group_is(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    half, end = threading.Event(), threading.Event()

    def slow(run: Run, progress: Any) -> Result:
        progress(1, len(run.ranks))
        half.set()
        end.wait(10)
        return Result("slow", "Slow", "At last.")

    monkeypatch.setitem(routes._GROUPS, "half", SectionGroup("half", "Waiting", ("slow",), {"slow": slow}))

    async def ask(client):
        answer = asyncio.ensure_future(client.get("/api/result?name=half", headers=GOOD))
        await asyncio.to_thread(half.wait, 10)
        meanwhile = await client.get("/api/progress", headers=GOOD)
        end.set()
        await answer
        return meanwhile, await client.get("/api/progress", headers=GOOD)

    meanwhile, after = server.together(ask)
    assert (meanwhile.json(), after.json()) == ({"half": [1, 2]}, {})


def test_the_verdict_does_not_wait_for_the_diagnosis_which_is_made_once(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    diagnosis = diagnoses.diagnosis
    # Another test may have stored a diagnosis.
    for module in (diagnoses, stored):
        monkeypatch.setattr(module, "diagnosis_code", lambda: "of this test")
    monkeypatch.setattr(diagnoses, "diagnosis", lambda case, **more: made.append(case) or diagnosis(case, **more))
    with Run.open(shutil.copytree(run_folder, tmp_path / "run")) as run:
        page_of(run, BY_NAME["verdict"].questions)
        assert not made
        page_of(run, BY_NAME["diagnosis"].questions)
    assert len(made) == 1


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


@pytest.mark.parametrize("ranks", ["", "0", "1,0"])
def test_a_selection_is_that_of_the_analysis(server: Server, run_folder: Path, ranks: str) -> None:
    given = unpacked(server.ask("GET", f"/api/selection?ranks={ranks}&start=1000000&stop=3000000&steps="))
    with Run.open(run_folder) as run:
        found = selection(run, ranks=[int(one) for one in ranks.split(",") if one], start=1_000_000, stop=3_000_000)
    assert given["results"] == [View().result(found)]
    assert [block["kind"] for block in given["results"][0]["blocks"]] == ["Lines", "Table", "Table", "Table"]


def test_selected_steps_are_those_of_the_analysis(server: Server, run_folder: Path) -> None:
    with Run.open(run_folder) as run:
        [(step,)] = run.rows("select max(step) from steps")
        found = selection(run, ranks=(0,), steps=(step, step))
    assert found.verdict.startswith(f"Step {step} on rank 0 = ")
    given = unpacked(server.ask("GET", f"/api/selection?ranks=0&start=0&stop=9&steps={step}-{step}"))
    assert given["results"] == [View().result(found)]


def test_stacks_of_a_selection_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    items = tuple((("idle.python", f"frame {number}"), 1, 100 - number) for number in range(9))
    found = Result("selection", "Selection", "", (Stacks("stacks", "Stacks", items, {}),))
    limited = replace(found, blocks=(limit_stacks(found.stacks, 4),))
    assert routes._pack_selection(found) == pack_page(Page("", (found,), {}))
    monkeypatch.setattr(routes, "MOST_FRAMES", 4)
    assert routes._pack_selection(found) == pack_page(Page("", (limited,), {}))


@pytest.mark.parametrize(
    "changed",
    [
        *({"ranks": ranks} for ranks in ("x", "0;1", "0,", "77")),
        *({"start": start} for start in ("1e9", "2000", "9" * 19)),
        *({"stop": stop} for stop in ("²", "-1", "9" * 30)),
        *({"steps": steps} for steps in ("x", "1-", "-1", "990-999", "2-1")),
    ],
)
def test_selections_that_make_no_sense_are_refused(server: Server, changed: dict[str, str]) -> None:
    asked = {"ranks": "0", "start": "0", "stop": "1000", "steps": "", **changed}
    assert server.ask("GET", "/api/selection", params=asked).status_code == 422


def test_a_selection_can_be_stopped(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, asked = threading.Event(), list[Run]()

    def endless(run: Run, **_: object) -> None:
        asked.append(run)
        begun.set()
        run.columns("select count(*) from range(100000000000) a")

    monkeypatch.setattr(routes, "sum_selection", endless)

    async def leave(client):
        waiting = asyncio.ensure_future(client.get("/api/selection?ranks=&start=0&stop=9&steps=", headers=GOOD))
        await asyncio.to_thread(begun.wait, 10)
        waiting.cancel()
        await asyncio.wait([waiting])

    began = time.monotonic()
    server.together(leave)
    assert asked[0].stopped
    assert time.monotonic() - began < 5


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
    manifest = load(folder)
    save(folder, manifest)
    derived = server.ask("GET", "/api/result?name=trust")
    assert first.headers["Lostflops-Run"] == derived.headers["Lostflops-Run"], "its data is the same"
    manifest.sources[0].hash = "of another trace"
    save(folder, manifest)
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


def test_queries_that_take_all_processes_leave_the_timeline_alone(server: Server) -> None:
    async def asked(client):
        body = {"query": "select sum(a.range + b.range) from range(10000000) a, range(10000000) b"}
        queries = [asyncio.ensure_future(client.post("/api/sql", headers=GOOD, json=body)) for _ in range(4)]
        await asyncio.sleep(0.1)
        try:
            return await asyncio.wait_for(client.get("/api/events?ranks=0&start=0&stop=9&most=1", headers=GOOD), 10)
        finally:
            for query in queries:
                query.cancel()
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


def test_time_in_the_queue_is_not_time_of_the_work(server: Server) -> None:
    """Two questions of 0.4 s each, one after the other, both have an answer within a limit of 0.6 s."""
    workers = Workers(1)

    async def two() -> list[object]:
        jobs = [workers.answer(server.live._run.beside(), lambda _: time.sleep(0.4), 0.6) for _ in range(2)]
        return await asyncio.gather(*jobs, return_exceptions=True)

    assert asyncio.run(two()) == [None, None]
    assert workers.close()


def test_work_that_is_left_while_it_waits_makes_room(server: Server) -> None:
    free = threading.Event()
    workers = Workers(1, waiting=1)

    def start(number: int) -> asyncio.Task[object]:
        return asyncio.create_task(workers.answer(server.live._run.beside(), lambda _: free.wait(5) and number, 5))

    async def leave_second() -> list[object]:
        tasks = []
        for number in (1, 2, 3):
            tasks.append(start(number))
            await asyncio.sleep(0.05)
            if number == 2:
                tasks[-1].cancel()
                await asyncio.wait(tasks[-1:])
        free.set()
        return await asyncio.gather(tasks[0], tasks[2])

    assert asyncio.run(leave_second()) == [1, 3]
    assert workers.close()


def test_the_trace_for_perfetto_is_that_of_the_export(server: Server, run_folder: Path) -> None:
    made = BytesIO()
    with Run.open(run_folder) as run:
        write_perfetto(run, made)
    answer = server.ask("GET", "/api/perfetto")
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert gzip.decompress(answer.content) == made.getvalue()
    assert not list(Path(tempfile.gettempdir()).glob("lostflops-*/trace.gz"))
