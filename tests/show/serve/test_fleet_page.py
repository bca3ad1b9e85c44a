"""The page of a fleet, asked without a network: who may ask, what it shows, and fleets that are hostile or change."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

pytest.importorskip("pyiceberg", reason="the extra fleet is not installed")

from tests.fleet.made_fleets import make_fleet
from tests.fleet.made_runs import make_finding, make_summary

from lostflops.fleet.changes import add_runs
from lostflops.fleet.summary import HostSummary
from lostflops.show.serve.fleet_page import FleetPage
from lostflops.show.serve.fleet_routes import FLEET_ROUTES, FleetSite, make_key
from lostflops.show.serve.guard import HEADERS
from lostflops.show.serve.routes import ROUTES

from .conftest import GOOD, HOST, TOKEN, SiteServer
from .test_guard import FORGED, METHODS, TOKENS, refused

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    '"><script>alert(1)</script>',
    "javascript:alert(1)",
    "\u202egpj.exe",
    "a\x00b\x1b[31m\r\nSet-Cookie: a=b",
    "../../etc/passwd",
    "'; drop table runs; --",
    "%2e%2e/?#&=+",
    "*",
]
KEY = make_key("run0")
RUN_PATHS = [f"/runs/{KEY}{route.path}" for route in ROUTES]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two jobs, of which one is 10% slower from its seventh run on."""
    runs = [
        make_summary(n, step_ns=1e9 * (1.1 if n >= 6 else 1), commit=f"c{n // 6}", findings=[make_finding("gc", 0.1)])
        for n in range(12)
    ]
    other = [make_summary(100 + n, name="gpt", labels={"team": "speech", "model": "gpt"}) for n in range(3)]
    return make_fleet(tmp_path_factory.mktemp("fleets") / "team", [*runs, *other])


@pytest.fixture
def server(place: Path) -> Iterator[SiteServer]:
    yield from serving(place)


def serving(place: Path, *folders: Path) -> Iterator[SiteServer]:
    site = FleetSite(FleetPage(place, folders))
    yield SiteServer(site)
    assert any(site.close() for _ in range(40))  # each waits half a second for Python code that cannot be interrupted


def address(view: str, **given: str) -> str:
    """With the parameters that its route asks for, which are empty unless given."""
    route = next(route for route in FLEET_ROUTES if route.path == f"/api/{view}")
    return f"{route.path}?{urlencode({name: given.get(name, '') for name in route.parameters})}"


def show(server: SiteServer, view: str, **given: str) -> str:
    response = server.ask("GET", address(view, **given))
    assert response.status_code == 200, response.text
    return str(response.json()["html"])


def text_of(html: str) -> str:
    return re.sub(r"<[^>]*>", " ", html)


def paths() -> list[str]:
    known = [f"{one.path}?{urlencode(dict.fromkeys(one.parameters, ''))}" for one in FLEET_ROUTES]
    return [*known, *RUN_PATHS, "/runs/", f"/runs/{KEY}", "/runs/xyz/", f"/runs/{KEY}/../", "/api/levitate"]


@pytest.mark.parametrize("forged", FORGED.values(), ids=list(FORGED))
@pytest.mark.few(3)
def test_other_sites_are_refused_though_they_have_the_token(server: SiteServer, forged: dict[str, str]) -> None:
    for path in paths():
        for method in METHODS:
            assert refused(server.ask(method, path, {**GOOD, **forged})), f"{method} {path}"


@pytest.mark.parametrize("given", TOKENS.values(), ids=list(TOKENS))
def test_nothing_about_the_fleet_is_said_without_the_token(server: SiteServer, given: dict[str, str | bytes]) -> None:
    public = {route.path for route in FLEET_ROUTES if route.public}
    public |= {f"/runs/{KEY}{route.path}" for route in ROUTES if route.public}
    for path in paths():
        response = server.ask("GET", path, {"Host": HOST, **given})
        assert response.status_code == (200 if path.partition("?")[0] in public else 401), path
        assert {name: response.headers[name] for name in HEADERS} == HEADERS


def test_public_routes_are_the_same_for_every_fleet_and_key(server: SiteServer) -> None:
    assert [route.path for route in FLEET_ROUTES if route.public] == ["/", "/fleet.js", "/fleet.css", "/app.css"]
    other = f"/runs/{make_key('no run has this name')}/"
    assert server.ask("GET", other).content == server.ask("GET", f"/runs/{KEY}/").content


def test_the_page_has_no_script_and_no_style_in_its_views(server: SiteServer) -> None:
    for view, given in VIEWS.items():
        html = show(server, view, **given)
        assert not re.search(r"<script|<style|\sstyle=|\son\w+=|javascript:", html, re.IGNORECASE), view


VIEWS: dict[str, dict[str, str]] = {
    "overview": {},
    "jobs": {},
    "job": {"name": "llama"},
    "hosts": {},
    "host": {"name": "node0"},
    "compare": {"first": "llama", "second": "gpt"},
    "run": {"name": "run0"},
}


def test_each_view_begins_with_a_sentence_that_answers(server: SiteServer) -> None:
    verdicts = {
        view: re.findall(r'<p class="verdict">(.*?)</p>', show(server, view, **given))[0]
        for view, given in VIEWS.items()
    }
    assert verdicts == {
        "overview": "15 runs of 2 jobs used 300 GPU-hours: 40% is compute.",
        "jobs": "2 jobs: 1 slower than before, 0 faster, 0 unchanged, 1 with too few runs to know.",
        "job": "Job llama is 10% slower since 2023-11-20 (commit c1).",
        "hosts": "No host can be compared: each run used one host, or its ranks were not recorded in detail.",
        "host": "Host node0 cannot be compared with others: in its 1 run there was no other host with the same work.",
        "compare": "A step of llama takes 1.10x as long as a step of gpt (1.10 s and 1.00 s).",
        "run": "This run of job llama started on 2023-11-14 22:13 on 2 ranks of H100-SXM5 at commit c0.",
    }


def test_the_page_says_what_the_verb_says(server: SiteServer, place: Path) -> None:
    import lostflops as lf

    for given in ({}, {"team": "speech"}, {"status": "slower"}, {"week": "2023-11-20"}, {"host": "node3"}):
        labels = [f"team={given['team']}"] if "team" in given else []
        chosen = {name: value for name, value in given.items() if name != "team"}
        said = lf.ask_fleet(place, labels=labels, by="week", **chosen)
        shown = text_of(show(server, "overview", by="week", **given))
        assert " ".join(said.verdict.split()) in " ".join(shown.split()), given


def test_filters_are_kept_in_the_form(server: SiteServer) -> None:
    html = show(server, "jobs", team="speech", job="gp", order="newest")
    assert 'value="speech"' in html
    assert 'value="newest" selected' in html
    assert "#/job/gpt" in html
    assert "#/job/llama" not in html
    assert '<svg class="spark"' in html


@pytest.mark.parametrize(
    ("view", "given", "words"),
    [
        ("jobs", {"team": "nobody's"}, "no run matches"),
        ("jobs", {"week": "soon"}, "2026-01-31"),
        ("jobs", {"week": "9999-12-31"}, "no run matches"),
        ("jobs", {"week": "0001-01-01"}, "no run matches"),
        ("jobs", {"status": "levitating"}, "slower, faster, unchanged, unknown"),
        ("jobs", {"order": "levitation"}, "hours, slower"),
        ("overview", {"by": "levitation"}, "Known: cause, job"),
        ("job", {"name": "no such job"}, "no run matches"),
        ("job", {"name": ""}, "choose one in a list"),
        ("host", {"name": "no such host"}, "no run matches"),
        ("run", {"name": "no such run"}, "is not in the fleet"),
        ("compare", {"first": "llama", "second": "no such job"}, "no run matches"),
    ],
)
def test_a_mistake_is_answered_in_words(server: SiteServer, view: str, given: dict[str, str], words: str) -> None:
    response = server.ask("GET", address(view, **given))
    assert response.status_code == 422
    assert words in response.json()["error"]


def test_every_name_may_be_hostile(tmp_path: Path) -> None:
    half = {"compute": 50}
    runs = []
    for number, name in enumerate([*HOSTILE, "x" * 10_000_000]):
        parts = [
            HostSummary(host=one, device=name[:99], ranks=1, window_ns=50, lines=half, slower=slower)
            for one, slower in ((name, 0.2), ("other", 0.0))
        ]
        finding = make_finding(name, 0.1, fix=name)
        texts = {"run": name, "name": name, "labels": {"team": name, name: name}, "address": name, "commit": name}
        runs.append(make_summary(number, **texts, hosts=parts, device=name[:99], findings=[finding]))
    place = make_fleet(tmp_path / "fleet", runs)
    for server in serving(place):
        asked = [("overview", {"by": "team"}), ("jobs", {}), ("hosts", {})]
        for name in HOSTILE:
            asked += [("job", {"name": name}), ("host", {"name": name}), ("run", {"name": name})]
            asked += [("compare", {"first": name, "second": "*"})]
        for view, given in asked:
            html = show(server, view, **given)
            tags = set(re.findall(r"</?([a-z0-9]+)", html))
            assert tags <= TAGS, (view, given, tags - TAGS)
            assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e]", html), (view, given)
            assert len(html) < 300_000
            targets = re.findall(r'href="([^"]*)"', html)
            assert all(target.startswith(("#/", "runs/")) for target in targets), targets


TAGS = {
    *("h2", "h3", "p", "div", "section", "table", "thead", "tbody", "tr", "th", "td", "a", "ul", "li", "svg", "rect"),
    *("polyline", "circle", "path", "text", "title", "form", "label", "input", "select", "option", "button", "details"),
    *("summary", "span", "code"),
}


def test_a_run_that_is_added_while_served_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lostflops.show.serve.fleet_page._LOOK_SECONDS", 0)
    place = make_fleet(tmp_path / "fleet", [make_summary(0)])
    for server in serving(place):
        first = server.ask("GET", address("overview"))
        assert "1 run of 1 job used 20 GPU-hours" in first.json()["html"]
        assert server.ask("GET", "/api/alive").headers["Lostflops-Run"] == first.headers["Lostflops-Run"]
        add_runs(place, [make_summary(1)])
        assert server.ask("GET", "/api/alive").headers["Lostflops-Run"] != first.headers["Lostflops-Run"]
        again = server.ask("GET", address("overview"))
        assert "2 runs of 1 job used 40 GPU-hours" in again.json()["html"]
        assert again.headers["Lostflops-Run"] != first.headers["Lostflops-Run"]


def test_a_run_that_is_put_into_a_folder_is_shown(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    from lostflops.testing import SyntheticCluster, store

    monkeypatch.setattr("lostflops.show.serve.fleet_page._LOOK_SECONDS", 0)
    shutil.copytree(run_folder, tmp_path / "runs" / "first")
    for server in serving(tmp_path / "runs"):
        assert "1 run of 1 job" in show(server, "overview")
        store(SyntheticCluster(ranks=1, steps=2).generate(), tmp_path / "runs" / "second")
        assert "2 runs of 2 jobs" in show(server, "overview")
        shutil.copytree(run_folder, tmp_path / "runs" / "copy")
        assert "1 run in this folder is a copy: counted once" in show(server, "overview")
        shutil.rmtree(tmp_path / "runs")
        assert "is not a folder" in server.ask("GET", address("overview")).json()["error"]


def test_a_fleet_whose_files_are_damaged_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lostflops.show.serve.fleet_page._LOOK_SECONDS", 0)
    place = make_fleet(tmp_path / "fleet", [make_summary(0)])
    for server in serving(place):
        assert server.ask("GET", address("jobs")).status_code == 200
        [file] = place.rglob("*.parquet")
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
        response = server.ask("GET", address("hosts"))
        assert response.status_code == 422
        assert "is missing or damaged" in response.json()["error"]
        file.write_bytes(whole)
        assert server.ask("GET", address("hosts")).status_code == 200
        (place / "catalog.db").write_bytes(b"no catalog")
        response = server.ask("GET", address("run", name="run0"))
        assert response.status_code == 422
        assert "is not the catalog of a fleet" in response.json()["error"]


def test_a_fleet_of_one_run_has_every_view(tmp_path: Path) -> None:
    place = make_fleet(tmp_path / "fleet", [make_summary(0)])
    for server in serving(place):
        for view, given in VIEWS.items():
            assert show(server, view, **{**given, **({"second": "llama"} if view == "compare" else {})}), view


def test_an_empty_fleet_says_how_to_add_runs(tmp_path: Path) -> None:
    from datetime import UTC, datetime

    from lostflops.fleet.changes import remove_runs

    place = make_fleet(tmp_path / "fleet", [make_summary(0)])
    remove_runs(place, datetime(2030, 1, 1, tzinfo=UTC))
    for server in serving(place):
        response = server.ask("GET", address("overview"))
        assert response.status_code == 422
        assert "has no runs yet: add some with lostflops fleet add" in response.json()["error"]


@pytest.mark.slow
def test_ten_thousand_hosts(tmp_path: Path) -> None:
    """Hosts that are slow come first; the others are counted."""
    runs = []
    for number in range(10):
        parts = [
            HostSummary(
                host=f"node{one:05}",
                device="H100",
                ranks=1,
                window_ns=10,
                lines={"compute": 10},
                slower=0.2 if one == 77 else 0.001 * ((one * 7 + number * 3) % 11 - 5) / 5,
                slower_error=0.001,
            )
            for one in range(10_000)
        ]
        lines = {"compute": 100_000}
        runs.append(make_summary(number, name=f"job{number}", hosts=parts, lines=lines, window_ns=100_000))
    place = make_fleet(tmp_path / "fleet", runs)
    for server in serving(place):
        html = show(server, "hosts")
        assert "1 of 10,000 hosts is slow in job after job" in html
        assert "9,800 more are not shown" in html
        assert "Host node00077 is slow: its ranks need 20% more time" in show(server, "host", name="node00077")


def test_a_run_in_the_folder_of_the_fleet_is_opened(run_folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "fleet"
    shutil.copytree(run_folder, place / "first")
    for server in serving(place):
        html = show(server, "jobs")
        job = re.findall(r"#/job/([^\"]+)", html)[0]
        link = re.findall(r'href="(runs/[0-9a-f]{16}/)"', show(server, "job", name=job))[0]
        shell = server.ask("GET", f"/{link}", {"Host": HOST})
        assert 'src="app.js"' in shell.text
        assert server.ask("GET", f"/{link}api/questions", {"Host": HOST}).status_code == 401
        found = server.ask("GET", f"/{link}api/questions")
        assert found.json()["sections"]
        answer = server.ask("POST", f"/{link}api/sql", json={"query": "select 41 + 1 as answer"})
        assert answer.status_code == 200


def test_only_runs_in_folders_that_the_owner_named_are_opened(run_folder: Path, tmp_path: Path) -> None:
    """A row of a fleet may name any path."""
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "run").symlink_to(run_folder)
    (inside / "loop").symlink_to(inside / "loop")
    addresses = [
        str(run_folder),
        f"{tmp_path}/fleet/../../{run_folder}",
        str(inside / "run"),
        str(inside / "loop"),
        "s3://bucket/run",
        "\0",
        "",
    ]
    runs = [make_summary(n, address=one) for n, one in enumerate(addresses)]
    place = make_fleet(tmp_path / "fleet", runs)
    for folders, opened in (((), []), ((inside,), []), ((run_folder.parent,), [0, 2])):
        for server in serving(place, *folders):
            for number in range(len(addresses)):
                response = server.ask("GET", f"/runs/{make_key(f'run{number}')}/api/questions")
                assert response.status_code == (200 if number in opened else 422), (folders, addresses[number])
                shown = show(server, "run", name=f"run{number}")
                assert ("Open the page of this run" in shown) == (number in opened)
                assert ("lostflops serve" in shown) == (number not in opened)


def test_few_runs_are_open_at_once(run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio
    import shutil

    from lostflops.show.serve.opened_runs import OpenedRuns

    monkeypatch.setattr("lostflops.show.serve.opened_runs.MOST_OPEN", 2)
    for name in ("a", "b", "c"):
        shutil.copytree(run_folder, tmp_path / name)

    async def use() -> None:
        opened = OpenedRuns([tmp_path])
        first = await opened.open(str(tmp_path / "a"))
        assert await opened.open(str(tmp_path / "b")) is not first
        assert await opened.open(str(tmp_path / "a")) is first
        await opened.open(str(tmp_path / "c"))  # closes b, which was asked about least recently
        assert await opened.open(str(tmp_path / "a")) is first
        assert opened.close()

    asyncio.run(use())


def test_a_token_is_not_in_any_answer(server: SiteServer) -> None:
    for view, given in VIEWS.items():
        assert TOKEN not in show(server, view, **given)


def test_parameters_are_exactly_those_of_the_route(server: SiteServer) -> None:
    for query in ("", "?name=llama", "?name=llama&width=9&more=1", "?name=a&name=b&width=1"):
        assert server.ask("GET", f"/api/job{query}").status_code == 400
