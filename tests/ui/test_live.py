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
from lostflops.explain.analyze.report import report
from lostflops.store.run import Run
from lostflops.testing import SyntheticCluster, store

if TYPE_CHECKING:
    from .conftest import OpenPage

pytest.importorskip("starlette", reason="the extra serve is not installed")
PROGRAM = [sys.executable, "-c", "from lostflops.cli.main import main; main()", "serve"]
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
def test_a_live_page(open_page: OpenPage, run: Path, served: tuple[subprocess.Popen[str], str], complaints) -> None:
    process, address = served
    page = open_page(address)
    page.locator("html[data-complete=yes]").wait_for(state="attached", timeout=120_000)
    with Run.open(run) as opened:
        verdict = report(opened).verdict
        [(events,)] = opened.sql("select count(*) from events").fetchall()
    assert page.locator("#report .verdict").inner_text() == verdict
    assert "token" not in page.url, "the token stays in the address"

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
        page.wait_for_function("window.written.length > 0")
        return [text for text in page.evaluate("window.written") if text.startswith(("stream", "thread"))]

    page.keyboard.press("Enter")
    everywhere = lanes()
    assert {"stream 7", "stream 24"} <= set(everywhere)
    tall = rows.bounding_box()["height"]
    for _ in range(14):
        page.keyboard.press("w")
    assert lanes() == everywhere
    assert rows.bounding_box()["height"] == tall
