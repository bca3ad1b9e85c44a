"""Pages can be read: lines have colours of their own, words enough contrast, and on a phone nothing is cut."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lostflops.account.facts.kernel_names import short
from lostflops.account.ledger.lines import LINES as LEDGER
from lostflops.core.results import Field, HeatMap, Line, Lines, Page, Result, Table
from lostflops.show.report.html import write_page
from tests.ui.stylesheet import read_table, read_variables

if TYPE_CHECKING:
    from playwright.sync_api import Page as Tab

    from tests.ui.conftest import OpenPage

THEMES = pytest.mark.parametrize("dark", [False, True])
LEAST_CONTRAST = 4.5
"""Of text and its ground: WCAG 2.2, level AA."""
Shown = Callable[..., "Tab"]


@pytest.fixture
def shown(open_page: OpenPage, tmp_path: Path) -> Shown:
    def show(*results: Result, **how: Any) -> Tab:
        file = tmp_path / "page.html"
        with file.open("w", encoding="utf-8") as stream:
            write_page(Page("made", results, {}), stream)
        return open_page(file, **how)

    return show


BARS = ".lines .unfolding > [data-row] .bar"


@THEMES
def test_only_bubbles_share_a_colour_in_the_ledger(shown: Shown, dark: bool) -> None:
    lines = tuple(Line(name, 10, 1 / len(LEDGER)) for name in LEDGER)
    tab = shown(Result("made", "Made", "Made.", (Lines("lines", "", lines, 10 * len(LEDGER), 1, ""),)), dark=dark)
    bars = tab.locator(BARS).evaluate_all("all => all.map(one => getComputedStyle(one).fill)")
    assert len(bars) == len(LEDGER) == len(set(bars)) + 1
    assert bars[LEDGER.index("idle.bubble")] == bars[LEDGER.index("comm.bubble")]


# All colours of a picture but those at its edges.
COLOURS = """async (picture) => {
  const bytes = Uint8Array.from(atob(picture), (letter) => letter.charCodeAt(0));
  const image = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
  const pen = new OffscreenCanvas(image.width, image.height).getContext("2d");
  pen.drawImage(image, 0, 0);
  const { data } = pen.getImageData(4, 4, image.width - 8, image.height - 8);
  const digits = (part) => part.toString(16).padStart(2, "0");
  const text = (place) => "#" + [...data.slice(place, place + 3)].map(digits).join("");
  return [...new Set(Array.from({ length: data.length / 4 }, (_, pixel) => text(4 * pixel)))];
}"""


@THEMES
def test_waits_are_hatched_and_nothing_else_is(shown: Shown, dark: bool) -> None:
    lines = tuple(Line(name, 10, 1 / len(LEDGER)) for name in LEDGER)
    tab = shown(Result("made", "Made", "Made.", (Lines("lines", "", lines, 10 * len(LEDGER), 1, ""),)), dark=dark)
    found = read_variables("dark" if dark else "light")
    for line in LEDGER:
        picture = tab.locator(f".lines .unfolding > [data-row='{line}'] .bar").screenshot()
        colours = set(tab.evaluate(COLOURS, b64encode(picture).decode()))
        variable = read_table("colours.ts", "TIME")[line]
        if ground := found.get(f"{variable}-ground"):
            assert {ground, found[variable]} <= colours, line
        else:
            assert colours == {found[variable]}, line


CONTRAST = """(element) => {
  const light = (colour) => {
    const parts = colour.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255);
    const [red, green, blue] = parts.map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05;
  };
  const style = getComputedStyle(element);
  const [ink, ground] = [style.color, getComputedStyle(document.documentElement).backgroundColor].map(light);
  return style.opacity === "1" ? Math.max(ink, ground) / Math.min(ink, ground) : 0;
}"""


@THEMES
def test_a_result_without_blocks_is_still_legible_in_the_navigation(shown: Shown, dark: bool) -> None:
    tab = shown(
        Result("made", "Made", "Made.", (Table("t", "", (Field("a"),), ((1,),)),)),
        Result("bare", "B", "No."),
        dark=dark,
    )
    assert tab.locator("nav .bare").evaluate(CONTRAST) > LEAST_CONTRAST


def test_lines_do_not_end_within_a_number_or_an_option(shown: Shown) -> None:
    words = " ".join(f"takes {number}.25 ms of it, so give --model-flops={number}" for number in range(100, 140))
    tab = shown(Result("made", "Made", f"It {words} --{'a' * 500}"), width=390)
    kept = tab.locator(".verdict .unbroken")
    assert set(kept.all_text_contents()) == {f"{number}.25 ms" for number in range(100, 140)} | {"--model-flops"}
    assert set(kept.evaluate_all("all => all.map(one => one.getClientRects().length)")) == {1}
    assert tab.evaluate("document.documentElement.scrollWidth") == 390, "what is too long is broken after all"


def test_names_leave_room_for_their_figures_on_a_phone(shown: Shown) -> None:
    name = "triton_red_fused__log_softmax_div_mul_sigmoid_backward_view_40"
    table = Table(
        "kernels", "", (Field("kernel"), Field("count", "count"), Field("ns", "ns")), ((name, 32, 46_000_000),)
    )
    tab = shown(Result("made", "Made", "Made.", (table,)), width=390)
    box = tab.locator("td.number").last.bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= 390


def test_a_column_of_names_is_written_in_one_way(shown: Shown) -> None:
    rows = (
        ("bucket_mb, compression, first_bucket_mb, comm_streams, zero", "no sizes"),
        ("network.bandwidth_and_more", ""),
    )
    tab = shown(Result("made", "Made", "Made.", (Table("refused", "", (Field("change"), Field("reason")), rows),)))
    fonts = "all => all.map(one => getComputedStyle(one).fontFamily)"
    assert len(set(tab.locator("td:first-child").evaluate_all(fonts))) == 1


def test_a_cell_is_told_by_what_its_row_and_column_are(shown: Shown) -> None:
    late = HeatMap("late", "", (("0", (1.0, 2.0)), ("1", (3.0, 4.0))), "ns", "made", ("10", "11"), "rank", "step")
    tab = shown(Result("made", "Made", "Made.", (late,)))
    tab.locator(".chart canvas[style*=width]").wait_for()
    tab.locator(".chart canvas").focus()
    tab.keyboard.press("ArrowDown")
    box = tab.locator(".callout:visible")
    assert box.locator("dt").all_text_contents() == ["rank", "step"]
    assert box.locator("dd").all_text_contents() == ["1", "10"]


def test_kernels_that_differ_at_their_ends_are_told_apart(shown: Shown) -> None:
    whole = tuple(f"void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16<Opaque<{n}>>" for n in (4, 8))
    rows = tuple((short(name), name) for name in whole)
    table = Table("kernels", "", (Field("kernel"), Field("name", shown=False)), rows)
    cells = shown(Result("made", "Made", "Made.", (table,))).locator("td")
    assert len(set(cells.all_text_contents())) == 2
    assert cells.evaluate_all("all => all.map(one => one.title)") == list(whole)
