"""What-ifs of a live page: the server replays them together, and an answer that comes too late is not shown."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lostflops
from lostflops import Run
from lostflops.core.units import format_ns
from lostflops.predict.whatif.baseline import baseline
from lostflops.show.pages.knob_positions import try_changes
from lostflops.testing import SyntheticCluster, store

pytest.importorskip("uvicorn", reason="the extra serve is not installed")
pytestmark = pytest.mark.slow

SERVE = "from lostflops.cli.main import main; main()"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store(SyntheticCluster(ranks=2, steps=3).generate(), tmp_path_factory.mktemp("live") / "run")


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    command = [sys.executable, "-c", SERVE, "serve", str(folder), "--no-browser"]
    env = os.environ | {"PYTHONPATH": str(Path(lostflops.__file__).parents[1])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as server:
        assert server.stdout is not None
        yield next(line.strip() for line in server.stdout if re.search("http://", line))
        server.send_signal(signal.SIGINT)


@pytest.fixture
def page(open_page, address: str) -> Any:
    page = open_page(address)
    page.locator("html[data-complete=yes]").wait_for(state="attached", timeout=120_000)
    page.locator("#knobs h2").scroll_into_view_if_needed()
    page.locator(".knobs .answer").wait_for()
    return page


def turn(page: Any, change: str, value: str) -> None:
    knob = page.locator(f"[data-knob='{change}']")
    if not knob.is_visible():
        page.locator(".knobs .still summary").click()
    knob.get_by_role("radio", name=value, exact=True).check()


def answer(page: Any) -> list[str]:
    page.locator(".answer:not([aria-busy])").wait_for(timeout=60_000)
    return list(page.locator(".figure strong").all_inner_texts())


@pytest.mark.parametrize("order", [1, -1])
def test_two_changes_are_replayed_together_in_one_order(page: Any, folder: Path, order: int) -> None:
    changes = [("network.bandwidth", "0.25x"), ("accumulate", "2")]
    for name, value in changes[::order]:
        turn(page, name, value)
    with Run.open(folder) as run:
        start = baseline(run)
    together, alone = try_changes(start, changes), try_changes(start, changes[1:])
    assert together.predicted_ns > alone.predicted_ns
    assert answer(page)[:2] == [format_ns(2 * round(start.measured)), format_ns(together.predicted_ns)]
    assert page.locator(".answer h4").inner_text() == "With network.bandwidth=0.25x, accumulate=2"


def test_an_answer_that_comes_late_is_dropped(page: Any) -> None:
    held: list[Any] = []

    def hold(route: Any) -> None:
        held.append(route)

    page.route("**/api/whatif", hold)
    turn(page, "network.bandwidth", "0.25x")
    for place, value in ((1, "2"), (2, "4")):
        turn(page, "accumulate", value)
        while len(held) < place:
            page.wait_for_timeout(20)
    told = {"low_ns": 1, "high_ns": 3, "lines": [["compute", 2]], "why_not": "", "work": 1, "how": "", "notes": []}
    told["gain_interval"] = None
    for route, ns in zip(reversed(held), (2_000_000, 1_000_000), strict=True):
        with page.expect_response("**/api/whatif"):
            route.fulfill(json={"value": "", "predicted_ns": ns, **told})
    assert answer(page)[1] == "2.00 ms"


def test_a_link_with_two_changes_is_replayed(page: Any, folder: Path) -> None:
    page.goto(page.url.partition("#")[0] + "#?changes=accumulate:2;network.bandwidth:0.25x")
    with Run.open(folder) as run:
        together = try_changes(baseline(run), [("network.bandwidth", "0.25x"), ("accumulate", "2")])
    page.locator(".answer h4", has_text="With network.bandwidth=0.25x, accumulate=2").wait_for()
    assert answer(page)[1] == format_ns(together.predicted_ns)
