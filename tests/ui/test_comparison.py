"""The page of two runs in a browser: the same numbers as `lostflops diff --json`, and both steps on one time axis."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lostflops import diff, diff_page
from lostflops.core.units import format_ns
from lostflops.testing import Straggler, SyntheticCluster, store

if TYPE_CHECKING:
    from playwright.sync_api import Page as Tab


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A page, and what JSON says."""
    folder = tmp_path_factory.mktemp("made")
    for name, late in (("even", ()), ("late", (Straggler(1, "slow_kernels", factor=1.5),))):
        store(SyntheticCluster(ranks=3, stragglers=late).generate(), folder / name)
    sides = folder / "even", folder / "late"
    diff_page(*sides, folder / "page.html")
    return folder / "page.html", diff(*sides).to_json()


@pytest.mark.parametrize(("width", "dark"), [(1440, False), (390, True)])
@pytest.mark.few(1)
def test_the_page_says_what_json_says(open_page, made, width: int, dark: bool) -> None:
    file, told = made
    tab: Tab = open_page(file, width=width, dark=dark)
    assert tab.locator("#diff .verdict").inner_text() == told["verdict"]
    rows = tab.locator("#diff [data-block=lines] tbody tr")
    rows.first.wait_for()
    shown = [[cell.strip() for cell in row.locator("td").all_inner_texts()] for row in rows.all()]
    wanted = [
        [row["line"], *(format_ns(row[key]) for key in ("before_ns", "after_ns", "delta_ns"))] for row in told["lines"]
    ]
    assert [row[:4] for row in shown] == wanted


def test_bars_are_as_long_as_their_differences(open_page, made) -> None:
    file, told = made
    tab: Tab = open_page(file)
    bars = tab.locator("#diff [data-block=lines] .bar rect")
    bars.first.wait_for()
    widths = [float(width) for width in bars.evaluate_all("all => all.map((one) => one.getAttribute('width'))")]
    deltas = [row["delta_ns"] for row in told["lines"]]
    assert len(widths) == len(deltas)
    for width, delta in zip(widths, deltas, strict=True):
        assert width == pytest.approx(widths[-1] * abs(delta) / deltas[-1], abs=1.01)


def test_rows_of_both_runs_open_to_their_events(open_page, made) -> None:
    tab: Tab = open_page(made[0])
    timeline = tab.locator("#aligned_steps .timeline")
    timeline.locator("canvas").first.wait_for()
    search = timeline.locator("input[type=search]")
    search.fill("nvjet")
    search.press("Enter")
    panel = timeline.locator(".panel")
    panel.get_by_text("Zoom to event").wait_for()
    assert "A rank 1" in panel.inner_text(), "the first row is the late rank of A"
    assert "nvjet" in panel.inner_text()


def test_findings_stay_with_their_run(open_page, made) -> None:
    tab: Tab = open_page(made[0])
    tab.locator("#findings_b .finding").wait_for()
    tab.locator("#findings_a .calm").wait_for()
    assert tab.locator("#findings_a .calm").inner_text() == "No cause was found."
    assert tab.locator("#findings_b .evidence").count() == 0
