"""What-ifs show what the JSON says: step, interval, gain and every line, at each value, largest gain first."""

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
    gain_interval=(0.2, 0.3),
)
UNTOLD = Setting("both", None, None, None, why_not="<i>nobody</i> is late")
TWICE = Setting(
    "2", 180_000_000, 170_000_000, 190_000_000, (("compute", 180_000_000),), work=2, gain_interval=(0.05, 0.15)
)
ONE = Setting("1", NOW.predicted_ns, NOW.low_ns, NOW.high_ns, NOW.lines)
STILL = Setting("on", NOW.predicted_ns, NOW.low_ns, NOW.high_ns, NOW.lines)
HARDLY = Setting("free", 99_600_000, 90_000_000, 110_000_000, (("compute", 99_600_000),), gain_interval=(-0.1, 0.1))
LONGER = Setting("off", 130_000_000, 120_000_000, 140_000_000, (("compute", 130_000_000),), gain_interval=(-0.4, -0.2))
SIZES = tuple(
    Setting(
        str(size),
        100_000_000 - 1_000_000 * size,
        80_000_000,
        90_000_000,
        (("compute", 100_000_000 - 1_000_000 * size),),
        gain_interval=(0.1, 0.2),
    )
    for size in (0, 1, 2, 4, 6, 8, 11)
)
NAMES = tuple(
    Setting(name, 97_000_000, 96_000_000, 98_000_000, (("compute", 97_000_000),), gain_interval=(0.02, 0.04))
    for name in "abcdef"
)
MADE = Knobs(
    "knobs",
    "Turn",
    NOW.predicted_ns or 0,
    NOW.lines,
    (
        Knob("launch", "launching", (NOW, HARDLY), 0),
        Knob("overlap", "overlap", (NOW, STILL), 0),
        Knob("accumulate", "microbatches", (ONE, TWICE), 0),
        Knob("bucket_mb", "buckets, MiB", SIZES, 0, is_bound=True),
        Knob("schedule", "schedule", (NOW, *NAMES), 0),
        Knob("straggler", "late ranks", (NOW, LESS, UNTOLD), 0, "late ranks take less", "a new node"),
        Knob("graphs", "graphs", (NOW, LONGER), 0),
    ),
)
TOLD = MADE.to_json()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "page.html"
    with file.open("w", encoding="utf-8") as stream:
        write_page(Page("made", (Result("knobs", "What if", "Turn.", (MADE,)),), {}), stream)
    return file


@pytest.fixture
def page(open_page, file: Path) -> Any:
    page = open_page(file)
    page.locator(".knobs .answer").wait_for()
    return page


def knob(page: Any, change: str) -> Any:
    return page.locator(f"[data-knob='{change}']")


def choose(page: Any, change: str, value: str) -> None:
    knob(page, change).get_by_role("radio", name=value, exact=True).check()


def effect(page: Any, change: str) -> str:
    return str(knob(page, change).locator(".effect").inner_text()).replace("\n", " ")


def rows(page: Any) -> dict[str, list[str]]:
    found = page.locator(".knobs .moved tbody tr")
    cells = [found.nth(at).locator("th, td").all_inner_texts() for at in range(found.count())]
    return {name.strip(): values for name, *values in cells}


def signed(ns: int) -> str:
    return f"+{format_ns(ns)}" if ns > 0 else format_ns(ns)


def test_the_largest_saving_comes_first_and_what_saves_nothing_is_folded(page: Any) -> None:
    shown = page.locator(".knobs .rows > [data-knob]").evaluate_all("all => all.map(one => one.dataset.knob)")
    assert shown == ["straggler", "bucket_mb", "accumulate", "schedule", "launch"]
    assert not knob(page, "graphs").is_visible()
    page.get_by_text("2 more that save nothing").click()
    assert [knob(page, change).is_visible() for change in ("overlap", "graphs")] == [True, True]
    assert effect(page, "graphs") == "nothing"


def test_each_line_says_what_its_best_value_saves(page: Any) -> None:
    low, high = (1 - ns / 100_000_000 for ns in (80_000_000, 70_000_000))
    assert effect(page, "straggler") == f"{format_share(0.24749877)} with removed {low:.0%}"[:-1] + f" to {high:.0%}"
    assert effect(page, "accumulate") == "10.0% 5 to 15%"
    assert effect(page, "bucket_mb") == "at most 11.0% with 11"
    assert effect(page, "launch") == "0.4% -10% to 10%, may be zero"


def test_two_values_are_a_toggle_few_are_buttons_and_many_a_slider_or_a_list(page: Any) -> None:
    toggle = page.get_by_role("button", name="launching free", pressed=False)
    toggle.click()
    assert page.locator(".answer h4").inner_text() == "With launch=free"
    page.get_by_role("button", name="launching free", pressed=True).click()
    assert page.locator(".figure strong").all_inner_texts() == [format_ns(TOLD["measured_ns"])]
    assert page.get_by_role("button", name="microbatches 1 → 2").count() == 1
    names = page.get_by_role("radiogroup", name="late ranks").get_by_role("radio")
    assert names.evaluate_all("all => all.map(one => one.ariaLabel)") == [
        "as recorded",
        "removed",
        "both: no prediction",
    ]
    slider = page.get_by_role("slider", name="buckets, MiB")
    slider.fill("6")
    assert slider.get_attribute("aria-valuetext") == "11"
    assert page.locator(".answer h4").inner_text() == "With bucket_mb=11"
    page.get_by_role("combobox", name="schedule").select_option("c")
    assert page.locator(".answer h4").inner_text() == "With schedule=c"
    assert slider.get_attribute("aria-valuetext") == "0 (now)"


def test_all_of_ten_changes_and_the_answer_fit_on_a_screen(open_page, tmp_path: Path) -> None:
    made = tmp_path / "ten.html"
    ten = tuple(Knob(f"change{at}", "microbatches per gradient reduction", (ONE, LESS, TWICE), 0) for at in range(10))
    block = Knobs("knobs", "Turn", MADE.measured_ns, MADE.lines, ten)
    with made.open("w", encoding="utf-8") as stream:
        write_page(Page("made", (Result("knobs", "What if", "Turn.", (block,)),), {}), stream)
    page = open_page(made, width=1440)
    choose(page, "change0", "removed")
    assert page.locator(".knobs .rows > [data-knob]").count() == 10
    assert page.locator("[data-block=knobs]").bounding_box()["height"] < 900


@pytest.mark.parametrize("width", [1280, 390])
def test_the_figures_stay_in_sight_while_knobs_are_scrolled(open_page, file: Path, width: int) -> None:
    page = open_page(file, width=width, height=520)
    page.locator(".still summary").click()
    choose(page, "straggler", "removed")
    knob(page, "graphs").evaluate("one => one.scrollIntoView({ block: 'end' })")
    figure, below = (page.locator(f".answer {name}").bounding_box() for name in (".figure.gain", ".moved"))
    assert 0 <= figure["y"] <= 520 - figure["height"]
    assert below is not None


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


def test_a_chosen_value_shows_the_numbers_of_the_json(page: Any) -> None:
    knob(page, "straggler").get_by_role("radio", name="as recorded").focus()
    page.keyboard.press("ArrowRight")
    told = TOLD["knobs"]["straggler"][1]
    gain = 1 - told["predicted_ns"] / TOLD["measured_ns"]
    figures = [format_ns(TOLD["measured_ns"]), format_ns(told["predicted_ns"]), f"{format_share(gain)} shorter"]
    assert page.locator(".figure strong").all_inner_texts() == figures
    low, high = (format_ns(ns) for ns in told["interval"])
    assert page.locator(".sure").inner_text() == f"Range: {low} to {high}."
    both = {**TOLD["lines"], **told["lines"]}
    pairs = {name: (TOLD["lines"].get(name, 0), told["lines"].get(name, 0)) for name in both}
    pairs["step"] = TOLD["measured_ns"], told["predicted_ns"]
    wanted = {name: [format_ns(old), format_ns(new), signed(new - old)] for name, (old, new) in pairs.items()}
    assert rows(page) == wanted
    assert knob(page, "straggler").get_by_role("radio", name="removed").is_checked()
    assert page.get_by_text("lostflops whatif made --change straggler=removed").count() == 1
    assert page.get_by_text("<b>replace</b> the node").count() == 1


def test_bars_are_as_long_as_their_lines_on_one_scale(page: Any) -> None:
    choose(page, "straggler", "removed")
    whole = page.locator(".knobs .bars").bounding_box()["width"]
    longest = max(TOLD["measured_ns"], TOLD["knobs"]["straggler"][1]["interval"][1])
    for bar, lines in (("measured", TOLD["lines"]), ("predicted", TOLD["knobs"]["straggler"][1]["lines"])):
        for line, ns in lines.items():
            # Without its outline, which a bounding box counts.
            drawn = page.locator(f".bars .{bar} rect[data-line='{line}']").evaluate("one => one.getBBox().width")
            assert drawn == pytest.approx(whole * ns / longest, abs=1)


def test_what_cannot_be_told_says_why_in_place_of_numbers(page: Any) -> None:
    choose(page, "straggler", "both: no prediction")
    assert page.locator(".why").inner_text() == "No prediction: <i>nobody</i> is late"
    assert page.locator(".figure strong").all_inner_texts() == [format_ns(TOLD["measured_ns"])]
    assert page.locator(".knobs .moved, .knobs .bars, .knobs .applied").count() == 0


def test_one_at_a_time_and_steps_of_more_work_are_compared_by_it(page: Any) -> None:
    choose(page, "straggler", "removed")
    knob(page, "accumulate").get_by_role("button").click()
    assert knob(page, "straggler").get_by_role("radio", name="as recorded").is_checked()
    assert page.locator(".figure strong").all_inner_texts() == ["200 ms", "180 ms", "10.0% shorter"]
    assert "does the work of 2 recorded steps: 90.0 ms for each of them." in page.locator(".sure").inner_text()
    assert rows(page)["compute"] == ["140 ms", "180 ms", "+40.0 ms"]
    page.get_by_role("button", name="reset all").click()
    assert knob(page, "accumulate").get_by_role("button", pressed=False).count() == 1
    assert page.locator(".figure strong").all_inner_texts() == [format_ns(TOLD["measured_ns"])]


def test_what_is_not_sure_is_neither_good_nor_bad(page: Any) -> None:
    knob(page, "launch").get_by_role("button").click()
    assert "The effect may be zero." in page.locator(".sure").inner_text()
    assert page.locator(".gain strong").inner_text() == "0.4% shorter"
    assert page.locator(".gain").get_attribute("class") == "figure gain"
    assert page.locator("[data-knob='launch'] b").get_attribute("class") == ""
    choose(page, "straggler", "removed")
    assert page.locator(".gain").get_attribute("class") == "figure gain good"
    assert page.locator("[data-knob='straggler'] b").get_attribute("class") == "good"


def test_the_predicted_step_is_a_ghost_above_the_measured_one(page: Any) -> None:
    choose(page, "straggler", "removed")
    tops = {name: page.locator(f".bars .{name} .outline").bounding_box() for name in ("predicted", "measured")}
    assert tops["predicted"]["y"] + tops["predicted"]["height"] <= tops["measured"]["y"]
    opacity = ".bars .{} [data-line]"
    shown = [
        page.locator(opacity.format(name)).first.evaluate("one => Number(getComputedStyle(one).fillOpacity)")
        for name in ("predicted", "measured")
    ]
    assert shown[0] < shown[1] == 1


def test_what_is_chosen_is_in_the_address_and_a_link_restores_it(open_page, page: Any, file: Path) -> None:
    choose(page, "straggler", "removed")
    assert page.evaluate("location.hash") == "#?changes=straggler:removed"
    other = open_page(f"{file.as_uri()}#?changes=graphs:off")
    assert other.locator(".answer h4").inner_text() == "With graphs=off"
    assert knob(other, "graphs").is_visible(), "what was folded away is opened"
    page.get_by_role("button", name="reset all").click()
    assert page.evaluate("location.hash") == ""


@pytest.mark.parametrize(
    ("changes", "why", "command"),
    [
        (
            "straggler:removed;launch:free",
            "this page predicts one change at a time.",
            "launch=free --change straggler=removed",
        ),
        ("bucket_mb:3", "this page has no prediction for this value.", "bucket_mb=3"),
        (
            "x:$(rm%2520-rf);y:'%253Btrue",
            "this page predicts one change at a time.",
            "'x=$(rm -rf)' --change NAME=VALUE",
        ),
    ],
)
def test_no_number_is_shown_that_was_not_predicted(open_page, file: Path, changes: str, why: str, command: str) -> None:
    page = open_page(f"{file.as_uri()}#?changes={changes}")
    assert page.locator(".why").inner_text() == f"No prediction: {why}"
    assert page.locator(".figure strong").all_inner_texts() == [format_ns(TOLD["measured_ns"])]
    assert page.locator(".applied code").inner_text() == f"lostflops whatif made --change {command}"


SLIDE = """(slider, values) => {
  for (const value of values) {
    slider.value = value;
    slider.dispatchEvent(new Event("input"));
  }
  slider.dispatchEvent(new Event("change"));
}"""


def test_back_undoes_each_turn_and_a_whole_move_of_a_slider(page: Any) -> None:
    changes = "/changes=(.*)/.exec(location.hash)?.[1] ?? ''"
    seen = [""]
    choose(page, "straggler", "removed")
    seen.append(page.evaluate(changes))
    knob(page, "launch").get_by_role("button").click()
    seen.append(page.evaluate(changes))
    for values in ([1, 2, 3], [4, 5]):
        page.get_by_role("slider", name="buckets, MiB").evaluate(SLIDE, values)
        seen.append(page.evaluate(changes))
    page.get_by_role("button", name="reset all").click()
    assert seen == ["", "straggler:removed", "launch:free", "bucket_mb:4", "bucket_mb:8"]
    for wanted in reversed(seen):
        page.go_back()
        assert page.evaluate(changes) == wanted
    assert page.locator(".figure strong").all_inner_texts() == [format_ns(TOLD["measured_ns"])]
