"""The page of a fleet in a real browser: every view at two widths, Back, filters, hostile names, the page of a run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lostflops
from tests.fleet.made_fleets import generate_summaries, make_fleet
from tests.fleet.made_runs import make_finding, make_summary

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from .conftest import OpenPage

pytest.importorskip("starlette", reason="the extra serve is not installed")
pytest.importorskip("pyiceberg", reason="the extra fleet is not installed")

from lostflops.testing import SyntheticCluster, store
from lostflops.testing.fleet import FleetPlan, GeneratedFleet
from tests.show.serve.test_fleet_page import HOSTILE
from tests.ui.test_axe import AXE, RUN

SOURCE = str(Path(lostflops.__file__).parent.parent)
PLAN = FleetPlan(runs=120, jobs=6, hosts=48, slow_hosts=0.05, slower=(0.08, 0.12), changed=0, regressions=0.5)
SIZES = [
    (1440, False),
    (390, True),
    pytest.param(1440, True, marks=pytest.mark.slow),
    pytest.param(390, False, marks=pytest.mark.slow),
]


@contextmanager
def serving(*words: str | Path) -> Iterator[str]:
    """A server as a program; gives the address with its token."""
    command = [sys.executable, "-m", "lostflops", "serve", *map(str, words), "--no-browser"]
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout
        yield next(found[0] for line in process.stdout if (found := re.search(r"http://\S+", line)))
        process.kill()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("fleet_page")
    with serving(make_fleet(folder / "team", generate_summaries(PLAN))) as served:
        yield served


TRUTH = GeneratedFleet(PLAN).truth
JOB, OTHER = TRUTH.regressions[0].job, TRUTH.jobs[-1]
HOST = TRUTH.slow_hosts[0].host
VIEWS = {
    "": "120 runs of 6 jobs used",
    "#/overview?by=team": "120 runs of 6 jobs used",
    "#/jobs": "6 jobs:",
    "#/hosts": f"{len(TRUTH.slow_hosts)} of 48 hosts are slow in job after job",
    f"#/job/{JOB}": f"Job {JOB} is 3% slower since",
    f"#/host/{HOST}": f"Host {HOST} is slow:",
    f"#/compare/{JOB}/{OTHER}": "A step of ",
    "#/run/run-000007": "This run of job ",
}


def go(page: Page, view: str) -> None:
    page.evaluate("(view) => { delete document.documentElement.dataset.ready; location.hash = view || '#/'; }", view)
    page.locator("html[data-ready=yes]").wait_for(state="attached")


@pytest.mark.parametrize(("width", "dark"), SIZES)
def test_every_view_answers_in_its_first_sentence_and_fits(
    open_page: OpenPage, address: str, width: int, dark: bool
) -> None:
    page = open_page(address, width=width, dark=dark)
    for view, words in VIEWS.items():
        go(page, view)
        assert words in page.locator(".verdict").inner_text(), view
        assert page.locator(".verdict").bounding_box()["y"] < 200, view  # type: ignore[index]
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view
        assert page.locator(".fleet-status").is_hidden()
        pictures = page.locator("svg.plot")
        for number in range(pictures.count()):
            box = pictures.nth(number).bounding_box()
            assert box is not None
            assert box["x"] + box["width"] <= width


def test_links_back_and_reload_work_and_the_token_is_not_in_the_address(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    assert "token" not in page.url
    page.get_by_role("link", name="Jobs", exact=True).click()
    page.locator("table svg.spark").first.wait_for()
    page.get_by_role("link", name=JOB).click()
    page.locator("h2", has_text=f"Job {JOB}").wait_for()
    assert page.locator("nav [aria-current]").inner_text() == "Jobs"
    page.locator("input[name=other]").fill(OTHER)
    page.get_by_role("button", name="Compare").click()
    page.locator("h2", has_text=f"{JOB} and {OTHER}").wait_for()
    page.go_back()
    page.locator("h2", has_text=f"Job {JOB}").wait_for()
    page.reload()
    page.locator("h2", has_text=f"Job {JOB}").wait_for()
    page.go_back()
    page.locator("h2", has_text="Jobs").wait_for()


def test_filters_choose_runs_and_are_in_the_address(open_page: OpenPage, address: str, complaints: list[str]) -> None:
    page = open_page(address)
    go(page, "#/jobs")
    page.locator("select[name=status]").select_option("slower")
    page.locator(".verdict", has_text=f"{len(TRUTH.regressions)} job").wait_for()
    assert page.url.endswith("#/jobs?status=slower")
    page.locator("input[name=job]").fill(JOB[-4:])
    page.locator("input[name=job]").press("Enter")
    page.locator(".verdict", has_text="1 job: 1 slower").wait_for()
    page.locator("input[name=team]").fill("no such team")
    page.get_by_role("button", name="Choose").click()
    page.locator(".fleet-status", has_text="no run matches").wait_for()
    assert [complaint.rpartition(" status of ")[2][:3] for complaint in complaints] == ["422"]
    complaints.clear()
    page.locator("input[name=team]").fill("")
    page.get_by_role("button", name="Choose").click()
    page.locator(".verdict", has_text="1 job: 1 slower").wait_for()


def test_without_a_token_the_page_says_what_to_open(browser: Browser, address: str) -> None:
    page = browser.new_context().new_page()
    page.goto(address.partition("#")[0])
    page.locator(".fleet-status", has_text="the token is missing or wrong").wait_for()
    page.context.close()


def test_nothing_runs_from_any_name_of_a_fleet(open_page: OpenPage, tmp_path: Path) -> None:
    """`open_page` fails if a page opens a dialog, says something on the console, or asks another server."""
    runs = [
        make_summary(number, run=name, name=name, labels={"team": name}, address=name, commit=name, device=name,
                     findings=[make_finding(name, 0.1, fix=name)])
        for number, name in enumerate(HOSTILE)
    ]  # fmt: skip
    with serving(make_fleet(tmp_path / "fleet", runs)) as address:
        page = open_page(address)
        for view in ("#/overview?by=team", "#/jobs", "#/hosts"):
            go(page, view)
        for name in HOSTILE:
            for view in ("job", "run"):
                go(page, f"#/{view}/{page.evaluate('encodeURIComponent', name)}")
                assert page.locator(".verdict").count() == 1, (view, name)
        assert page.locator("article img, article script, article iframe").count() == 0


@pytest.mark.slow
def test_a_run_opens_on_its_own_page_and_back_leads_to_the_fleet(open_page: OpenPage, tmp_path: Path) -> None:
    store(SyntheticCluster(ranks=2, steps=3).generate(), tmp_path / "runs" / "first")
    with serving(tmp_path / "runs") as address:
        page = open_page(address)
        go(page, "#/jobs")
        page.locator("tbody a").first.click()
        page.locator("h2", has_text="Job ").wait_for()
        page.locator("tbody a[href^=runs]").first.click()
        page.locator("html[data-complete=yes]").wait_for(state="attached", timeout=120_000)
        assert re.search(r"/runs/[0-9a-f]{16}/", page.url)
        assert "token" not in page.url
        page.go_back()
        page.locator("h2", has_text="Job ").wait_for()


@pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not installed: run npm ci in ui/")
@pytest.mark.parametrize(("width", "dark"), SIZES)
def test_no_view_breaks_a_rule_of_axe(browser: Browser, address: str, width: int, dark: bool) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light", bypass_csp=True
    )
    page = context.new_page()
    page.goto(address)
    page.locator("html[data-ready=yes]").wait_for(state="attached")
    page.evaluate(AXE.read_text("utf-8"))
    for view in VIEWS:
        go(page, view)
        assert page.evaluate(RUN) == [], view
    context.close()
