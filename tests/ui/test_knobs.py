"""Sliders show what the JSON says: step, interval, gain and every line, at each position."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lostflops.core.pictures import Knob, Knobs, Setting
from lostflops.core.results import Page, Result
from lostflops.core.units import format_ns, format_share
from lostflops.show.report.html import write_page

NOW = Setting("as recorded", 100_000_000, 95_000_000, 105_000_000, (("compute", 70_000_000), ("comm.wait", 30_000_000)))
LESS = Setting(
    "removed",
    75_250_123,
    70_000_000,
    80_000_000,
    (("compute", 70_000_000), ("comm.transfer", 5_250_123)),
    how="<b>replace</b> the node",
    notes=("others stay",),
)
UNTOLD = Setting("both", None, None, None, why_not="<i>nobody</i> is late")
TWICE = Setting("2", 180_000_000, 170_000_000, 190_000_000, (("compute", 180_000_000),), work=2)
ONE = Setting("1", NOW.predicted_ns, NOW.low_ns, NOW.high_ns, NOW.lines)
STILL = Setting("on", NOW.predicted_ns, NOW.low_ns, NOW.high_ns, NOW.lines)
HARDLY = Setting("free", 100_400_000, 90_000_000, 110_000_000, (("compute", 100_400_000),))
MADE = Knobs(
    "knobs",
    "Turn",
    NOW.predicted_ns or 0,
    NOW.lines,
    (
        Knob("straggler", "late ranks", (NOW, LESS, UNTOLD), 0, "late ranks take less", "a new node"),
        Knob("accumulate", "microbatches", (ONE, TWICE), 0),
        Knob("overlap", "overlap", (NOW, STILL), 0),
        Knob("launch", "launching", (NOW, HARDLY), 0),
    ),
)
TOLD = MADE.to_json()


@pytest.fixture
def page(open_page, tmp_path: Path) -> Any:
    file = tmp_path / "page.html"
    with file.open("w", encoding="utf-8") as stream:
        write_page(Page("made", (Result("knobs", "What if", "Turn.", (MADE,)),), {}), stream)
    page = open_page(file)
    page.locator(".knobs .answer").wait_for()
    return page


def slider(page: Any, change: str) -> Any:
    return page.locator(f"[data-knob='{change}'] input")


def rows(page: Any) -> dict[str, list[str]]:
    found = page.locator(".knobs .moved tbody tr")
    cells = [found.nth(at).locator("th, td").all_inner_texts() for at in range(found.count())]
    return {name.strip(): values for name, *values in cells}


def signed(ns: int) -> str:
    return f"+{format_ns(ns)}" if ns > 0 else format_ns(ns)


def test_nothing_is_covered_by_the_panel_that_moves_along(page: Any) -> None:
    page.set_viewport_size({"width": 1280, "height": 400})
    note = page.locator(".knobs .together")
    page.evaluate("document.body.style.setProperty('min-height', '3000px')")
    for down in range(0, 900, 50):
        page.evaluate("(down) => scrollTo(0, down)", down)
        panel, words = page.locator(".knobs .answer").bounding_box(), note.bounding_box()
        beside = words["x"] + words["width"] <= panel["x"]
        assert beside or words["y"] >= panel["y"] + panel["height"] or words["y"] + words["height"] <= panel["y"]


def test_at_rest_the_measured_step_stands_alone(page: Any) -> None:
    assert page.locator(".figure strong").all_inner_texts() == [format_ns(TOLD["measured_ns"])]
    wanted = {name: [format_ns(ns)] for name, ns in TOLD["lines"].items()}
    assert rows(page) == wanted | {"step": [format_ns(TOLD["measured_ns"])]}


def test_a_turned_slider_shows_the_numbers_of_the_json(page: Any) -> None:
    slider(page, "straggler").focus()
    page.keyboard.press("ArrowRight")
    told = TOLD["knobs"]["straggler"][1]
    gain = 1 - told["predicted_ns"] / TOLD["measured_ns"]
    figures = [format_ns(TOLD["measured_ns"]), format_ns(told["predicted_ns"]), f"{format_share(gain)} shorter"]
    assert page.locator(".figure strong").all_inner_texts() == figures
    low, high = (format_ns(ns) for ns in told["interval"])
    assert page.locator(".sure").inner_text() == f"90% interval: {low} to {high}."
    both = {**TOLD["lines"], **told["lines"]}
    pairs = {name: (TOLD["lines"].get(name, 0), told["lines"].get(name, 0)) for name in both}
    pairs["step"] = TOLD["measured_ns"], told["predicted_ns"]
    wanted = {name: [format_ns(old), format_ns(new), signed(new - old)] for name, (old, new) in pairs.items()}
    assert rows(page) == wanted
    assert page.locator("[data-knob='straggler'] output").inner_text() == "removed"
    assert page.get_by_text("lostflops whatif made --change straggler=removed").count() == 1
    assert page.get_by_text("<b>replace</b> the node").count() == 1


def test_bars_are_as_long_as_their_lines_on_one_scale(page: Any) -> None:
    slider(page, "straggler").fill("1")
    whole = page.locator(".knobs .bars").bounding_box()["width"]
    longest = max(TOLD["measured_ns"], TOLD["knobs"]["straggler"][1]["interval"][1])
    for bar, lines in (("measured", TOLD["lines"]), ("predicted", TOLD["knobs"]["straggler"][1]["lines"])):
        for line, ns in lines.items():
            # Without its outline, which a bounding box counts.
            drawn = page.locator(f".bars .{bar} rect[data-line='{line}']").evaluate("one => one.getBBox().width")
            assert drawn == pytest.approx(whole * ns / longest, abs=1)


def test_what_cannot_be_told_says_why_in_place_of_numbers(page: Any) -> None:
    slider(page, "straggler").fill("2")
    assert page.locator(".why").inner_text() == "No prediction: <i>nobody</i> is late"
    assert page.locator(".figure strong").all_inner_texts() == [format_ns(TOLD["measured_ns"])]
    assert page.locator(".knobs .moved, .knobs .bars, .knobs .applied").count() == 0


def test_one_at_a_time_and_steps_of_more_work_are_compared_by_it(page: Any) -> None:
    slider(page, "straggler").fill("1")
    slider(page, "accumulate").fill("1")
    assert slider(page, "straggler").input_value() == "0"
    assert page.locator(".figure strong").all_inner_texts() == ["200 ms", "180 ms", "10.0% shorter"]
    assert "does the work of 2 recorded steps: 90.0 ms for each of them." in page.locator(".sure").inner_text()
    assert rows(page)["compute"] == ["140 ms", "180 ms", "+40.0 ms"]
    page.get_by_role("button", name="reset all").click()
    assert slider(page, "accumulate").input_value() == "0"
    assert page.locator(".figure strong").all_inner_texts() == [format_ns(TOLD["measured_ns"])]


def test_what_is_not_sure_is_neither_good_nor_bad(page: Any) -> None:
    assert page.locator("[data-knob='launch'] .effect").inner_text() == "step: 100 ms, at most 0.4% longer"
    slider(page, "launch").fill("1")
    assert "The effect may be zero." in page.locator(".sure").inner_text()
    assert page.locator(".gain strong").inner_text() == "0.4% longer"
    assert page.locator(".gain").get_attribute("class") == "figure gain"
    slider(page, "straggler").fill("1")
    assert page.locator(".gain").get_attribute("class") == "figure gain good"


def test_knobs_that_move_nothing_are_folded_away(page: Any) -> None:
    assert not slider(page, "overlap").is_visible()
    page.get_by_text("1 more change with an effect below 0.1%").click()
    assert slider(page, "overlap").is_visible()
