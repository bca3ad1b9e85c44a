"""A part of a plot, chosen by dragging, keys and buttons; its shaded ranges and marks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lostflops.core.results import Band, Field, Mark, Page, Plot, Result, Series
from lostflops.show.report.html import write_page

if TYPE_CHECKING:
    from playwright.sync_api import Page as Tab

STEPS = 200
MS = 1_000_000
HISTORY = Plot(
    "history",
    "Time of each step",
    Field("step", "count"),
    Field("time_ns", "ns", "time of a step"),
    (
        Series("steps", "marks", tuple((step, (10 + step % 3) * MS) for step in range(STEPS) if step != 150)),
        Series("outlier: slow", "marks", ((150, 90 * MS),)),
        Series("median", "line", ((0, 11 * MS), (STEPS - 1, 11 * MS))),
    ),
    log_x=False,
    log_y=False,
    bands=(Band("deep window", 19.5, 39.5), Band("deep window", 119.5, 129.5)),
    marks=(Mark("attempt 1", 99.5),),
)


@pytest.fixture
def tab(open_page, tmp_path: Path) -> Tab:
    file = tmp_path / "page.html"
    with file.open("w", encoding="utf-8") as stream:
        write_page(Page("made", (Result("made", "Made", "Made.", (HISTORY,)),), {}), stream)
    opened: Tab = open_page(file)
    opened.locator(".chart > svg").wait_for()
    return opened


def frame(tab: Tab) -> dict[str, float]:
    """Where the plot's frame is in the window."""
    found: dict[str, float] = tab.locator(".axes .frame").evaluate("(one) => one.getBoundingClientRect().toJSON()")
    return found


def drag(tab: Tab, start: float, stop: float) -> None:
    """Over a part of the frame, by places from 0 to 1."""
    box = frame(tab)
    middle = box["top"] + box["height"] / 2
    tab.mouse.move(box["left"] + start * box["width"], middle)
    tab.mouse.down()
    tab.mouse.move(box["left"] + stop * box["width"], middle, steps=4)
    tab.mouse.up()


def points(tab: Tab) -> dict[str, int]:
    paths = tab.locator(".chart path[data-points]")
    counts = paths.evaluate_all("all => all.map((one) => Number(one.dataset.points))")
    return dict(zip(("median", "steps", "outlier"), counts, strict=True))


def ticks(tab: Tab) -> list[int]:
    texts = tab.locator(".axes text[text-anchor=middle]").all_text_contents()
    return [int(text.replace(",", "")) for text in texts]


def test_a_drag_shows_that_part_and_a_double_click_all(tab: Tab) -> None:
    whole = ticks(tab)
    drag(tab, 0.25, 0.5)
    assert 50 < points(tab)["steps"] < 60
    assert points(tab)["outlier"] == 0
    assert all(40 < tick < 105 for tick in ticks(tab))
    tops = tab.locator(".axes text[text-anchor=end]:not(.axis)").all_text_contents()
    assert not any("90" in text for text in tops), "the y axis fits what is shown"
    drag(tab, 0.5, 1.0)
    assert points(tab)["steps"] < 32, "a part of a part"
    tab.locator(".chart > svg").dblclick()
    assert ticks(tab) == whole
    assert points(tab) == {"median": 2, "steps": STEPS - 1, "outlier": 1}


def test_a_click_is_not_a_drag(tab: Tab) -> None:
    drag(tab, 0.5, 0.501)
    assert points(tab)["steps"] == STEPS - 1


def test_keys_zoom_around_the_point_that_is_told(tab: Tab) -> None:
    chart = tab.locator(".chart > svg")
    chart.focus()
    tab.keyboard.press("ArrowDown")
    told = tab.locator(".callout dd").first
    assert told.inner_text() == "150"
    for _ in range(3):
        tab.keyboard.press("+")
    assert told.inner_text() == "150", "it stays told"
    assert points(tab)["outlier"] == 1
    assert 20 < points(tab)["steps"] < 30
    assert chart.evaluate("(one) => one === document.activeElement"), "the keyboard stays there"
    tab.keyboard.press("-")
    assert 40 < points(tab)["steps"] < 60
    tab.keyboard.press("0")
    assert points(tab)["steps"] == STEPS - 1


def test_keys_lead_out_of_the_part_that_is_shown(tab: Tab) -> None:
    tab.locator(".chart > svg").focus()
    for key in ("+", "+", "+", "End"):
        tab.keyboard.press(key)
    told = tab.locator(".callout dd").first
    assert told.inner_text() == str(STEPS - 1)
    assert max(ticks(tab)) >= STEPS - 20
    tab.keyboard.press("ArrowLeft")
    assert told.inner_text() == str(STEPS - 2)
    tab.keyboard.press("Home")
    assert told.inner_text() == "0"
    tab.keyboard.press("Escape")
    tab.keyboard.press("Escape")
    assert points(tab)["steps"] == STEPS - 1


def test_buttons_zoom_where_nothing_can_be_dragged(tab: Tab) -> None:
    tab.get_by_role("button", name="Zoom in").click()
    assert 90 < points(tab)["steps"] < 110
    tab.get_by_role("button", name="Zoom out").click()
    assert points(tab)["steps"] == STEPS - 1
    for _ in range(20):
        tab.get_by_role("button", name="Zoom in").click()
    assert 3 <= points(tab)["steps"] <= 6, "not further than a few steps"
    tab.get_by_role("button", name="Show all").click()
    assert points(tab)["steps"] == STEPS - 1


def test_bands_and_marks_are_where_their_steps_are(tab: Tab) -> None:
    box = frame(tab)
    bands = tab.locator(".chart .band")
    assert bands.count() == 2
    edges = bands.evaluate_all("all => all.map((one) => [one.getBBox().x, one.getBBox().width])")
    per_step = edges[0][1] / 20
    assert edges[1][1] == pytest.approx(10 * per_step, rel=0.01)
    assert edges[1][0] - edges[0][0] == pytest.approx(100 * per_step, rel=0.01)
    assert tab.locator(".marked text").text_content() == "attempt 1"
    assert tab.locator(".shaded").all_inner_texts() == ["deep window"]
    drag(tab, 0.0, 0.2)
    assert tab.locator(".chart .band").count() == 1
    assert tab.locator(".marked text").count() == 0
    shown = tab.locator(".chart .band").bounding_box()
    assert shown is not None
    assert shown["x"] + shown["width"] <= box["left"] + box["width"] + 1
