"""The page from a server, in a real browser: the same results, SQL, and what is said when the server is gone."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lostflops
from lostflops.explain.advise.summary import report_with_findings
from lostflops.explain.analyze.report import report
from lostflops.show.pages.page import TITLES
from lostflops.store.run import Run
from lostflops.testing import Straggler, SyntheticCluster, store
from tests.ui.made_run import recorded_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

    from .conftest import OpenPage

pytest.importorskip("starlette", reason="the extra serve is not installed")
PROGRAM = [sys.executable, "-c", "from lostflops.cli.main import main; main()", "serve"]
SELECT = """(address) => {
  document.querySelector(".summed")?.remove();
  history.pushState(null, "", address);
  dispatchEvent(new PopStateEvent("popstate"));
}"""
SOURCE = str(Path(lostflops.__file__).parent.parent)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return store(SyntheticCluster(ranks=2, steps=3).generate(), tmp_path / "run")


@pytest.fixture
def served(run: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    command = [*PROGRAM, str(run), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout
        yield process, next(found[0] for line in process.stdout if (found := re.search(r"http://\S+", line)))
        process.kill()


@pytest.mark.slow
def test_two_runs_are_compared_below_the_first(open_page: OpenPage, run: Path, tmp_path: Path) -> None:
    late = SyntheticCluster(ranks=2, steps=3, stragglers=(Straggler(1, "slow_kernels", factor=2),))
    other = store(late.generate(), tmp_path / "other")
    for page in _opened(open_page, run, other):
        page.locator("html[data-complete=yes]").wait_for(state="attached", timeout=120_000)
        assert page.locator("#diff .verdict").inner_text() == lostflops.diff(run, other).verdict
        assert page.locator("#findings_a").count() == 0
        page.locator("#aligned_steps .timeline canvas").first.wait_for()
        assert page.locator("#timeline .timeline").count() == 1


def _opened(open_page: OpenPage, *runs: Path) -> Iterator[Page]:
    """The page of a server that ends when the page is no longer needed."""
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    command = [*PROGRAM, *map(str, runs), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout
        yield open_page(next(found[0] for line in process.stdout if (found := re.search(r"http://\S+", line))))
        process.kill()


@pytest.mark.slow
def test_stacks_and_memory_of_a_selection_are_drawn(open_page: OpenPage, tmp_path: Path) -> None:
    for page in _opened(open_page, recorded_run(tmp_path)):
        page.locator("html[data-complete=yes]").wait_for(state="attached", timeout=120_000)
        for time in ("1000000-9000000", "2000000-12000000"):
            page.evaluate(SELECT, f"#timeline?ranks=0,2&time={time}")
            page.get_by_role("tab", name="Stacks").click()
            page.locator(".pane .flame canvas").wait_for()
            page.get_by_role("tab", name="Memory").click()
            assert page.locator(".pane tbody tr td:nth-child(2)").all_inner_texts() == ["cuda:0", "cuda:0"]
        assert page.get_by_text("Could not draw").count() == 0


@pytest.mark.slow
def test_a_live_page(open_page: OpenPage, run: Path, served: tuple[subprocess.Popen[str], str], complaints) -> None:
    process, address = served
    page = open_page(address)
    page.locator("html[data-complete=yes]").wait_for(state="attached", timeout=120_000)
    with Run.open(run) as opened:
        verdict = report_with_findings(report(opened), opened, shown=False).verdict
        [(events,)] = opened.sql("select count(*) from events").fetchall()
    assert page.locator("#report .verdict").inner_text() == verdict
    assert "token" not in page.url, "the token stays in the address"
    assert page.locator("main").count() == 1

    box = page.locator("#sql textarea")
    box.fill("select count(*) as events, '<img src=x onerror=alert(1)>' as name from events")
    box.press("Control+Enter")
    row = page.locator(".sql-answer tbody tr")
    row.wait_for()
    assert [cell.replace(",", "") for cell in row.locator("td").all_inner_texts()] == [
        str(events),
        "<img src=x onerror=alert(1)>",
    ]
    assert not complaints
    box.fill("copy events to 'x'")
    box.press("Control+Enter")
    page.locator(".sql-error").wait_for()
    assert "read-only" in page.locator(".sql-error").inner_text()

    process.send_signal(signal.SIGINT)
    page.locator(".live-status.bad").wait_for(timeout=20_000)
    assert "not responding" in page.locator(".live-status").inner_text()
    assert page.locator("#report .verdict").inner_text() == verdict
    # Chromium itself tells of answers that are errors, and of a server that is gone.
    complaints[:] = [one for one in complaints if "Failed to load resource" not in one]


@pytest.mark.slow
def test_a_page_shows_sections_before_their_results(browser: Browser, served) -> None:
    """The verdict is there while the diagnosis is held back, which then completes it in place."""
    held: list[Route] = []
    page = browser.new_page()
    page.route("**/api/result?name=diagnosis", lambda route: held.append(route))  # noqa: PLW0108 - it must be Python
    page.route("**/api/progress", lambda route: route.fulfill(json={"diagnosis": [1, 2]}))
    page.goto(served[1])
    verdict = page.locator("#overview .verdict")
    verdict.wait_for(timeout=60_000)
    first = verdict.inner_text()
    page.locator("#diagnosis .working", has_text="Diagnosing… 1 of 2 ranks").wait_for(timeout=60_000)
    assert page.locator("#diagnosis").get_attribute("aria-busy") == "true"
    titles = page.locator("nav a").all_inner_texts()
    assert titles[: len(TITLES)] == list(TITLES.values())
    status = page.locator(".live-status[role=status]")
    status.filter(has_text="Diagnosing").wait_for()
    held[0].continue_()
    page.locator("html[data-complete=yes]").wait_for(state="attached", timeout=120_000)
    assert page.locator(".working, .queued, [aria-busy]").count() == 0
    assert page.locator("article#overview").count() == page.locator("article#report").count() == 1
    assert first.startswith("Compute takes ")
    assert verdict.inner_text().endswith(f"compute{first.removeprefix('Compute')}")
    order = page.locator("main#results > article").evaluate_all("all => all.map((one) => one.id)")
    assert [name for name in order if name in TITLES] == [name for name in TITLES if name in order]
    assert not status.is_visible()
    page.close()


def test_without_its_token_a_page_says_so(open_page: OpenPage, served, complaints) -> None:
    _, address = served
    page = open_page(address.partition("#")[0])
    page.locator(".live-status.bad").wait_for()
    assert "token" in page.locator(".live-status").inner_text()
    complaints[:] = [one for one in complaints if "Failed to load resource" not in one]


# Labels of rows that are written on canvases from now on.
WRITTEN = """() => {
  window.written = [];
  const write = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
    window.written.push(text.trim());
    return write.call(this, text, ...rest);
  };
}"""


@pytest.mark.slow
def test_lanes_without_events_in_a_window_keep_their_places(open_page: OpenPage, served) -> None:
    page = open_page(served[1])
    rows = page.locator("#timeline .timeline .rows canvas")
    rows.wait_for(timeout=120_000)
    page.locator("html[data-complete=yes]").wait_for(state="attached", timeout=120_000)
    rows.focus()
    page.evaluate(WRITTEN)

    def lanes() -> list[str]:
        """As they are written once the answer to the last question is drawn."""
        page.wait_for_timeout(1500)
        page.evaluate("window.written = []")
        page.keyboard.press("ArrowUp")
        page.wait_for_function("() => window.written.length > 0")
        return [text for text in page.evaluate("window.written") if text.startswith(("stream", "thread"))]

    page.keyboard.press("Enter")
    everywhere = lanes()
    assert {"stream 7", "stream 24"} <= set(everywhere)
    tall = rows.bounding_box()["height"]
    for _ in range(14):
        page.keyboard.press("w")
    assert lanes() == everywhere
    assert rows.bounding_box()["height"] == tall


# Pans the timeline until it is told to stop, faster than it comes to rest.
PAN = """() => {
  const canvas = document.querySelector("#timeline .rows canvas");
  window.panned = 0;
  window.panning = setInterval(() => {
    canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "d" }));
    window.panned++;
  }, 50);
}"""


@pytest.mark.slow
def test_events_that_arrive_do_not_move_what_is_in_sight(open_page: OpenPage, served) -> None:
    page = open_page(served[1])
    page.locator("html[data-complete=yes]").wait_for(state="attached", timeout=120_000)
    rows = page.locator("#timeline .timeline .rows canvas")
    rows.focus()
    for key in (*["w"] * 14, *["a"] * 60):
        page.keyboard.press(key)
    page.wait_for_timeout(1000)
    held: list[Route] = []
    page.route("**/api/events?**", lambda route: held.append(route))  # noqa: PLW0108 - it must be Python
    page.keyboard.press("Enter")
    page.wait_for_timeout(800)
    shown = "/zoom=(\\d+)-(\\d+)/.exec(location.hash).slice(1).map(Number)"
    start, stop = page.evaluate(shown)
    page.evaluate(PAN)
    with page.expect_response("**/api/events?**"):
        held[0].continue_()
    page.wait_for_timeout(500)
    page.evaluate("clearInterval(window.panning)")
    page.wait_for_timeout(800)
    moved = page.evaluate("window.panned") * 0.15 * (stop - start)
    assert page.evaluate(shown)[0] - start == pytest.approx(moved, rel=0.01)
