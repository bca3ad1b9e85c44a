"""Charts show the numbers that JSON gives: in what they tell of a point, and in what they paint."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lostflops.core.results import (
    Block,
    Field,
    HeatMap,
    Page,
    Pair,
    Pairs,
    Plot,
    Portion,
    Portions,
    Result,
    Series,
    Stacks,
    Timeline,
)
from lostflops.core.units import format_bytes, format_ns, format_share
from lostflops.show.report.html import write_page
from lostflops.show.report.values import format_value

if TYPE_CHECKING:
    from playwright.sync_api import Locator
    from playwright.sync_api import Page as Tab

BEGAN = 1_789_000_000_000_000_123
LARGEST_COLOUR = (255, 234, 70)

Shown = Callable[..., "Tab"]


@pytest.fixture
def shown(open_page, tmp_path: Path) -> Shown:
    def show(*blocks: Block, **how: Any) -> Tab:
        file = tmp_path / "page.html"
        with file.open("w", encoding="utf-8") as stream:
            write_page(Page("made", (Result("made", "Made", "Made.", blocks),), {}), stream)
        return open_page(file, **how)

    return show


def _told(tab: Tab) -> dict[str, str]:
    """What the box beside the pointer says; its heading is under the empty name."""
    box = tab.locator(".callout:visible")
    pairs = zip(box.locator("dt").all_text_contents(), box.locator("dd").all_text_contents(), strict=True)
    return {"": box.locator("strong").inner_text(), **dict(pairs)}


def _hover(chart: Locator, x: float, y: float) -> None:
    chart.hover(position={"x": x, "y": y})


# Axes


def _labels(tab: Tab, block: str) -> tuple[list[str], list[str]]:
    """Of x and of y, without the titles."""
    texts = tab.locator(f"[data-block={block}] .axes text:not(.axis)")
    texts.first.wait_for()
    anchors = texts.evaluate_all("all => all.map(one => [one.getAttribute('text-anchor'), one.textContent])")
    return [text for anchor, text in anchors if anchor == "middle"], [
        text for anchor, text in anchors if anchor == "end"
    ]


def _plot(name: str, x: Field, y: Field, *points: tuple[float, float], log: bool = False) -> Plot:
    return Plot(name, "", x, y, (Series("made", "marks", points),), log_x=log, log_y=log)


def test_axes_have_round_values_in_their_units(shown: Shown) -> None:
    size, time, rate = Field("size", "bytes"), Field("time", "ns"), Field("busbw", "gbs", "bus bandwidth")
    tab = shown(
        _plot("decades", size, time, (1e3, 2e4), (1e9, 3e7), log=True),
        _plot("long", time, rate, (0, 0.5), (2 * 3600e9, 2.5)),
        _plot("longer", time, Field("share", "share"), (0, 0.1), (90 * 3600e9, 0.9)),
        _plot("near", Field("step", "count"), time, (1, 25.84e6), (2, 25.87e6), (3, 25.95e6)),
        _plot("few", Field("ranks", "count"), time, (8, 100), (16, 100), (4096, 100)),
        width=2300,
    )
    assert _labels(tab, "decades") == (
        ["1 kB", "10 kB", "100 kB", "1 MB", "10 MB", "100 MB", "1 GB"],
        ["100 us", "1 ms", "10 ms"],
    )
    assert _labels(tab, "long")[0] == ["0", *(f"{minutes} min" for minutes in range(10, 121, 10))]
    assert _labels(tab, "longer") == (
        ["0", *(f"{hours} h" for hours in range(10, 91, 10))],
        ["0%", "20%", "40%", "60%", "80%"],
    )
    assert _labels(tab, "few") == (["8", "4096"], ["60 ns", "80 ns", "100 ns", "120 ns", "140 ns"])
    near = ["25.84 ms", "25.86 ms", "25.88 ms", "25.9 ms", "25.92 ms", "25.94 ms"]
    assert _labels(tab, "near") == (["1", "2", "3"], near), "close ticks are told apart"
    assert tab.locator("[data-block=long] .axis").all_text_contents() == ["bus bandwidth (GB/s)", "time"]


def test_ratios_have_round_values_too(shown: Shown) -> None:
    """Few values of a roofline are no reason to write just them; numbers of things are."""
    work, rate = Field("flop_per_byte", "count"), Field("flop_per_second", "flops")
    roof = ((204.8, 686e12), (295.2, 989e12), (819.2, 584e12), (1117.1, 584e12), (4681.1, 989e12))
    tab = shown(_plot("roofline", work, rate, *roof, log=True))
    assert _labels(tab, "roofline") == (
        ["200", "500", "1000", "2000", "5000"],
        ["600 TFLOP/s", "700 TFLOP/s", "800 TFLOP/s", "900 TFLOP/s", "1 PFLOP/s"],
    )


# Plots

SIZES = Field("bytes", "bytes", "size")
TIMES = Field("ns", "ns", "time")
FITTED = Plot(
    "plot",
    "Time by size",
    SIZES,
    TIMES,
    (
        Series("all_reduce: measured", "marks", ((1_000, 20_500), (1_000_000, 150_000), (10**9, 12_345_678))),
        Series("all_reduce: fitted", "line", ((1_000, 20_000), (10**9, 12_000_000))),
        Series("all_gather: measured", "marks", ((2_000, 31_000), (0, 5_000), (4_000, -1))),
    ),
)


def test_no_label_is_cut_at_an_edge(shown: Shown) -> None:
    size, work, time = Field("size", "bytes"), Field("work", "flop"), Field("time", "ns")
    # The last moment of memory over time is the end of its axis.
    memory = Timeline("memory", "", BEGAN, BEGAN + 900_000_000, (BEGAN,), (1,), (("parameters", (1,)),), ())
    tab = shown(_plot("wide", size, work, (1, 1e11), (1e4, 1e15), log=True), _plot("usual", time, time, (1, 1)), memory)
    tab.locator(".axes").nth(2).wait_for()
    cut = """all => all.filter((one) => {
      const [text, chart] = [one.getBoundingClientRect(), one.ownerSVGElement.getBoundingClientRect()];
      return text.left < chart.left || text.right > chart.right;
    }).map((one) => one.textContent)"""
    assert "100 TFLOP" in _labels(tab, "wide")[1]
    assert "900 ms" in _labels(tab, "memory")[0]
    assert tab.locator(".axes text").evaluate_all(cut) == []


def test_a_plot_tells_each_point(shown: Shown) -> None:
    tab = shown(FITTED)
    chart = tab.locator(".chart svg")
    chart.focus()
    first, *_ = FITTED.to_json()
    for x, y in zip(first["bytes"], first["ns"], strict=True):
        told = {"": first["series"], "size": format_value(x, "bytes"), "time": format_value(y, "ns")}
        assert _told(tab) == told
        place = {axis: float(tab.locator(".cursor").get_attribute(f"c{axis}") or "nan") for axis in "xy"}
        tab.keyboard.press("Escape")
        _hover(chart, place["x"] + 2, place["y"] - 2)
        assert _told(tab) == told, "the pointer finds what the keyboard finds"
        tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowDown")
    assert _told(tab)[""] == "all_reduce: fitted"


def test_a_plot_draws_all_points_that_have_a_place(shown: Shown) -> None:
    tab = shown(FITTED)
    paths = tab.locator(".plot .chart path[data-points]")
    paths.first.wait_for()
    found = paths.evaluate_all(
        "all => all.map(one => [one.dataset.points, one.getAttribute('fill') ?? one.getAttribute('stroke')])"
    )
    [fitted, measured, other] = found
    assert [count for count, _ in found] == ["2", "3", "1"]
    assert fitted[1] == measured[1] != other[1], "names that are the same up to a colon have one colour"
    assert tab.get_by_text("Not drawn: 2 points that these axes cannot show.").count() == 1


def test_series_can_be_switched_off(shown: Shown) -> None:
    tab = shown(FITTED)
    entry = tab.get_by_role("button", name="all_reduce: measured")
    entry.click()
    assert entry.get_attribute("aria-pressed") == "false"
    assert tab.locator(".plot .chart path[visibility=hidden]").get_attribute("data-points") == "3"
    tab.locator(".chart svg").focus()
    assert _told(tab)[""] == "all_reduce: fitted"


def test_single_marks_have_their_names_beside_them_where_there_is_room(shown: Shown) -> None:
    """Two marks at one place have names on different sides, and no name covers another."""
    places = {"H100-SXM5": (10.0, 100.0), "MI300X": (40.0, 60.0), "A100": (60.0, 20.0), "twin": (40.0, 60.0)}
    line = Series("best", "line", ((10.0, 20.0), (80.0, 20.0)))
    tab = shown(
        Plot("devices", "", SIZES, TIMES, (*(Series(name, "marks", (at,)) for name, at in places.items()), line)),
        Plot("pairs", "", SIZES, TIMES, tuple(Series(name, "marks", (at, at)) for name, at in places.items())),
    )
    names = tab.locator("[data-block=devices] .chart text.name")
    names.first.wait_for()
    assert sorted(names.all_text_contents()) == ["A100", "H100-SXM5", "MI300X", "twin"]
    boxes = names.evaluate_all(
        "all => all.map(one => one.getBoundingClientRect()).map(box => [box.left, box.top, box.right, box.bottom])"
    )
    for place, (left, top, right, bottom) in enumerate(boxes):
        for other in boxes[place + 1 :]:
            assert left >= other[2] or other[0] >= right or top >= other[3] - 4 or other[1] >= bottom - 4
    tab.locator("[data-block=devices]").get_by_role("button", name="MI300X").click()
    hidden = tab.locator("[data-block=devices] .chart text.name[visibility=hidden]")
    assert hidden.all_text_contents() == ["MI300X"]
    assert tab.locator("[data-block=pairs] text.name").count() == 0


def test_plots_of_nothing_and_of_one_point(shown: Shown) -> None:
    tab = shown(
        Plot("none", "", SIZES, TIMES, ()),
        Plot("unplaced", "", SIZES, TIMES, (Series("a", "marks", ((0, 0),)),)),
        _plot("infinite", SIZES, TIMES, (1.0, math.inf)),
        _plot("zero", SIZES, TIMES, (0, 0)),
        _plot("one", SIZES, TIMES, (7, 7), log=True),
    )
    assert tab.locator("[data-block=none]").inner_text() == "No data to plot."
    for name in ("unplaced", "infinite"):
        assert "1 point that these axes cannot show" in tab.locator(f"[data-block={name}]").inner_text()
    for name, said in (("zero", "0 B"), ("one", "7 B")):
        tab.locator(f"[data-block={name}] .chart svg").focus()
        assert _told(tab)["size"] == said


def test_many_points_are_thinned_and_still_told(shown: Shown) -> None:
    points = tuple((float(place), float(place % 3)) for place in range(20_000))
    tab = shown(_plot("many", Field("x", "count"), Field("y", "count"), *points))
    chart = tab.locator(".chart svg")
    chart.focus()
    assert int(tab.locator("path[data-points]").get_attribute("data-points") or 0) < 20_000
    tab.keyboard.press("End")
    assert (_told(tab)["x"], _told(tab)["y"]) == ("19,999", "1")


# Heat maps

LATE = HeatMap(
    "late",
    "Lateness",
    (("rank 0", (0.0, 1_500_000.4, None)), ("rank 1", (2_000_000.0, 9_876_543.0, 250.0)), ("rank 2", (5_000.0,))),
    "ns",
    "how late it came",
)
FIND = """(canvas, [red, green, blue]) => {
  const { data, width, height } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let [left, top, right, bottom] = [width, height, -1, -1];
  for (let place = 0; place < data.length / 4; place++)
    if (data[4 * place] === red && data[4 * place + 1] === green && data[4 * place + 2] === blue) {
      const [x, y] = [place % width, Math.floor(place / width)];
      [left, top] = [Math.min(left, x), Math.min(top, y)];
      [right, bottom] = [Math.max(right, x), Math.max(bottom, y)];
    }
  return [left, top, right, bottom];
}"""


@pytest.mark.parametrize("dark", [False, True])
def test_the_largest_cell_has_the_brightest_colour(shown: Shown, dark: bool) -> None:
    tab = shown(LATE, dark=dark)
    canvas = tab.locator(".chart canvas")
    tab.locator(".chart canvas[style*=width]").wait_for()
    left, top, right, bottom = canvas.evaluate(FIND, LARGEST_COLOUR)
    assert (right - left + 1, bottom - top + 1) == (76, 26), "one cell, and only one, has it"
    _hover(canvas, (left + right) / 2, (top + bottom) / 2)
    assert _told(tab) == {"": "9.88 ms", "row": "rank 1", "column": "2 of 3"}
    said = tab.locator(".scale span").all_text_contents()
    assert [text.strip() for text in said] == ["from 0 ns to 9.88 ms", "no value (1)"]


def test_arrow_keys_tell_every_cell(shown: Shown) -> None:
    tab = shown(LATE)
    canvas = tab.locator(".chart canvas")
    tab.locator(".chart canvas[style*=width]").wait_for()
    canvas.focus()
    for row in LATE.to_json():
        for place, value in enumerate(row["values"]):
            told = _told(tab)
            assert told[""] == ("no value" if value is None else format_ns(round(value)))
            assert (told["row"], told["column"]) == (row["row"], f"{place + 1} of {len(row['values'])}")
            tab.keyboard.press("ArrowRight")
        tab.keyboard.press("Home")
        tab.keyboard.press("ArrowDown")
    assert canvas.evaluate("canvas => canvas === document.activeElement")


def test_columns_are_told_by_their_names(shown: Shown) -> None:
    rows = (("rank 0", (1.0, 2.0)), ("rank 1", (3.0, None)))
    tab = shown(HeatMap("phases", "", rows, "ns", "made", ("forward", "backward")))
    tab.locator(".chart canvas[style*=width]").wait_for()
    tab.locator(".chart canvas").focus()
    tab.keyboard.press("ArrowDown")
    assert _told(tab) == {"": "3 ns", "row": "rank 1", "column": "forward"}


WRITTEN = """() => {
  window.written = [];
  const write = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
    window.written.push(text);
    return write.call(this, text, ...rest);
  };
}"""


def test_names_of_narrow_columns_are_all_written_and_numbers_where_there_is_room(shown: Shown) -> None:
    phases = ("forward", "backward", "reduce_scatter", "all_gather", "optimizer", "other")
    tab = shown(
        HeatMap("phases", "", (("rank 0", (1.0,) * 6),), "ns", "made", phases),
        HeatMap("steps", "", (("rank 0", (1.0,) * 40),), "ns", "made", tuple(str(10_000 + n) for n in range(40))),
    )
    tab.evaluate(WRITTEN)
    tab.set_viewport_size({"width": 390, "height": 900})
    tab.locator("[data-block=steps] .chart canvas[style*='width: 3']").wait_for()
    written = tab.evaluate("window.written")
    assert set(phases) <= set(written)
    assert 3 <= sum(text.startswith("100") for text in written) <= 12


def test_axes_of_a_heat_map_say_what_they_are(shown: Shown) -> None:
    rows = (("0", (1.0, 2.0)), ("1", (3.0, None)))
    tab = shown(HeatMap("late", "", rows, "ns", "made", ("10", "11"), "rank", "step of training"))
    tab.evaluate(WRITTEN)
    tab.set_viewport_size({"width": 390, "height": 900})
    tab.locator(".chart canvas[style*=width]").focus()
    tab.wait_for_function("() => window.written.includes('rank') && window.written.includes('step of training')")
    tab.keyboard.press("ArrowDown")
    assert _told(tab) == {"": "3 ns", "rank": "1", "step of training": "10"}


def test_no_hot_cell_is_lost_between_pixels(shown: Shown) -> None:
    rows = tuple(
        (f"rank {row}", tuple(9.0 if (row, place) == (777, 333) else 1.0 for place in range(1000)))
        for row in range(1000)
    )
    tab = shown(HeatMap("large", "", rows, "count", "made"), width=390)
    tab.locator(".chart canvas[style*=width]").wait_for()
    canvas = tab.locator(".chart canvas")
    left, top, right, bottom = canvas.evaluate(FIND, LARGEST_COLOUR)
    assert (left, top) == (right, bottom)


# Memory over time

OWNERS = (("activations", (10_000, 0, 30_000)), ("parameters", (50_000, 50_000, 50_000)), ("gradients", (0, 0, 0)))
MEMORY = Timeline(
    "timeline",
    "Over time, on the host",
    BEGAN,
    BEGAN + 3_000_000,
    (BEGAN + 400_000, BEGAN + 1_200_000, BEGAN + 2_345_678),
    (60_000, 50_000, 80_000),
    OWNERS,
    ((7, BEGAN), (8, BEGAN + 2_000_000)),
    top=BEGAN + 2_345_678,
)


def test_memory_over_time_tells_owners_that_sum(shown: Shown) -> None:
    tab = shown(MEMORY)
    tab.locator(".chart svg").focus()
    tab.keyboard.press("Home")
    json = MEMORY.to_json()
    for column, at in enumerate(json["at_ns"]):
        held = {name: bytes_[column] for name, bytes_ in json["owners"].items() if bytes_[column]}
        assert sum(held.values()) == json["bytes"][column]
        step = max(one["step"] for one in json["steps"] if one["at_ns"] <= at)
        assert _told(tab) == {
            "": f"{format_ns(at - BEGAN)}, step {step}",
            **{name: format_bytes(count) for name, count in held.items()},
            "total": format_bytes(json["bytes"][column]),
        }
        tab.keyboard.press("ArrowRight")


def test_areas_are_as_high_as_their_bytes(shown: Shown) -> None:
    tab = shown(MEMORY)
    tab.locator(".area").first.wait_for()
    activations, parameters = tab.locator(".area").evaluate_all(
        "all => all.map(one => { const box = one.getBBox(); return [box.y, box.y + box.height]; })"
    )
    pixels = (parameters[1] - parameters[0]) / (80_000 - 0)
    assert activations[1] - activations[0] == pytest.approx(30_000 * pixels, abs=1)
    assert tab.locator(".top text").text_content() == "peak 80.0 kB"
    assert tab.locator("text.mark").all_text_contents() == ["step 7", "8"]
    assert tab.locator(".chart-legend li").all_text_contents() == ["activations", "parameters", "1 more at zero"]


# Stacks

LOST = Stacks(
    "stacks",
    "Stacks",
    (
        (("idle.data", "main train.py:1", "load data.py:7"), 6, 600_000),
        (("idle.data", "main train.py:1", "load data.py:7", "read io.py:3"), 1, 150_000),
        (("idle.python", "main train.py:1", "step optim.py:9"), 2, 250_000),
    ),
    {"idle.data": "line", "idle.python": "line", "main train.py:1": "program", "load data.py:7": "program"},
)


@pytest.fixture
def flame(shown: Shown) -> Tab:
    tab = shown(LOST)
    tab.locator("canvas[data-drawn]").wait_for()
    return tab


def test_all_frames_are_drawn_and_told(flame: Tab) -> None:
    canvas = flame.locator("canvas")
    stacks = [(one["stack"], one["samples"], one["ns"]) for one in LOST.to_json()]
    branches = {tuple(stack[:end]) for stack, _, _ in stacks for end in range(len(stack) + 1)}
    assert canvas.get_attribute("data-drawn") == str(len(branches))
    width = (canvas.bounding_box() or {})["width"]
    for level, at, path in (
        (1, 0.1, ("idle.data",)),
        (3, 0.3, stacks[0][0]),
        (4, 0.01, stacks[1][0]),
        (3, 0.9, stacks[2][0]),
    ):
        under = [(samples, ns) for stack, samples, ns in stacks if stack[: len(path)] == list(path)]
        ns = sum(one for _, one in under)
        _hover(canvas, at * width, 20 * level + 10)
        told = _told(flame)
        assert (told[""], told["time"]) == (path[-1], format_ns(ns))
        assert told["share of total"] == format_share(ns / 1_000_000)
        assert told["samples"] == str(sum(one for one, _ in under))
    assert told["self time"] == "250 us"


def test_a_click_zooms_in_and_escape_out(flame: Tab) -> None:
    canvas = flame.locator("canvas")
    canvas.click(position={"x": 50, "y": 50})
    assert flame.locator(".crumbs").inner_text() == "all > idle.data > main train.py:1"
    assert canvas.get_attribute("data-drawn") == "3"
    flame.keyboard.press("Escape")
    assert flame.locator(".crumbs").inner_text() == "all > idle.data"
    flame.get_by_role("button", name="all").click()
    assert canvas.get_attribute("data-drawn") == "8"


def test_the_keyboard_walks_the_graph(flame: Tab) -> None:
    flame.locator(".flame input").focus()
    flame.keyboard.press("Tab")
    for key, name in (
        ("ArrowDown", "idle.data"),
        ("ArrowRight", "idle.python"),
        ("ArrowDown", "main train.py:1"),
        ("ArrowUp", "idle.python"),
        ("Enter", "idle.python"),
    ):
        flame.keyboard.press(key)
        assert _told(flame)[""] == name
    assert flame.locator(".crumbs").inner_text() == "all > idle.python"
    assert flame.locator("canvas").get_attribute("data-drawn") == "3"


def test_search_tells_the_share_that_matches(flame: Tab) -> None:
    flame.locator(".flame input").fill("LOAD")
    assert flame.locator("output").inner_text() == "1 matching frame, 75.0% of the time shown"
    flame.locator(".flame input").fill(".py")
    assert "100.0%" in flame.locator("output").inner_text(), "what matches inside of another counts once"
    flame.locator(".flame input").fill("")
    assert flame.locator("output").inner_text() == ""


# Paper


def test_charts_that_were_never_in_sight_are_on_paper(open_page, tmp_path: Path) -> None:
    """Browsers take the picture when those that listen are done, and draw no further frame for it."""
    above = Pairs("above", "", tuple(Pair(f"f{n}", n, "count") for n in range(300)))
    owners = Portions("owners", "", "owner", (Portion("parameters", 6, 1), Portion("gradients", 4, 1)), 10)
    memory = Timeline("memory", "", BEGAN, BEGAN + 900_000_000, (BEGAN,), (1,), (("parameters", (1,)),), ())
    heat = HeatMap("heat", "", (("0", (1.0, 2.0)),), "ns", "made")
    below = Result("below", "Below", "Below.", (FITTED, owners, memory, heat, LOST))
    file = tmp_path / "page.html"
    with file.open("w", encoding="utf-8") as stream:
        fillers = (Result(name, name, "Above.", (above,)) for name in ("first", "second", "third", "fourth"))
        write_page(Page("made", (*fillers, below), {}), stream)
    tab = open_page(file)
    tab.add_init_script("window.requestIdleCallback = () => 0")  # else a page draws the rest when it has time
    tab.reload()
    tab.locator("html[data-ready=yes]").wait_for(state="attached")
    assert tab.locator("#below [data-block]").count() == 0
    drawn = tab.evaluate(
        """() => {
          dispatchEvent(new Event("beforeprint"));
          const found = document.querySelectorAll("#below .chart > :is(svg, canvas), #below .tile");
          return [...found].filter((one) => one.getBoundingClientRect().width > 0).length;
        }"""
    )
    assert drawn == 4 + 2
    tab.set_viewport_size({"width": 700, "height": 1000})
    tab.emulate_media(media="print")
    wide = "all => all.filter((one) => one.getBoundingClientRect().right > innerWidth).length"
    assert tab.locator("#below .chart > :is(svg, canvas)").evaluate_all(wide) == 0
    swatches = tab.locator(".chart-legend svg, .chart-legend button")
    assert swatches.count() > 0
    assert set(swatches.evaluate_all("all => all.map((one) => getComputedStyle(one).printColorAdjust)")) == {"exact"}
    assert all(swatches.nth(place).is_visible() for place in range(swatches.count()))
