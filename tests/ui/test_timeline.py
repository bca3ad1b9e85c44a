"""Timelines in a browser: pixels have the colour of what was going on, and what is selected is told in full."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lostflops.account.ledger.lines import LINES
from lostflops.core.estimate import Strength
from lostflops.core.pictures import Events, Lane, Meetings, RowStretches, Span, Spans, Strips
from lostflops.core.results import Block, Evidence, Finding, Findings, Page, Result
from lostflops.core.units import format_ns, parse_duration
from lostflops.show.pages.glossary import GLOSSARY
from lostflops.show.report.html import write_page
from tests.ui.stylesheet import read_variables

if TYPE_CHECKING:
    from playwright.sync_api import Page as Tab

    from tests.ui.conftest import OpenPage

SPAN, BINS = 8_000_000_000, 64
COMPUTE, TRANSFER, WAIT = (1 + LINES.index(line) for line in ("compute", "comm.transfer", "comm.wait"))
BLUE, ORANGE, RED, GREEN, VIOLET = "--compute", "--transfer", "--wait", "--phase-forward", "--phase-backward"
HOSTILE = "<img src=x onerror=alert(1)>"
AXIS, ROW = 22, 22
MINUTE = 60_000_000_000

Show = Callable[..., "Tab"]

# Where a share of the time stands in the middle of a row, and which colour is there.
PIXEL = """([share, y]) => {
  const canvas = document.querySelector(".timeline .rows canvas");
  const labels = canvas.clientWidth < 600 ? 92 : 128;
  const x = labels + share * (canvas.clientWidth - labels);
  const ratio = canvas.width / canvas.clientWidth;
  return [...canvas.getContext("2d").getImageData(x * ratio, y * ratio, 1, 1).data].slice(0, 3);
}"""


# What is written on canvases from now on: the words, where they begin and how wide they are.
WRITTEN = """() => {
  window.written = [];
  const write = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, x, ...rest) {
    window.written.push([text, x, this.measureText(text).width]);
    return write.call(this, text, x, ...rest);
  };
}"""


# So many times, and nothing counts as written before.
ZOOM_IN = """(times) => {
  const press = (key) => document.querySelector(".rows canvas").dispatchEvent(new KeyboardEvent("keydown", { key }));
  for (let at = 0; at < times; at++) press("w");
  window.written = [];
  press("ArrowUp");
}"""


def strips(ranks: int = 2) -> Strips:
    """Rank 0 computes for half of the time and waits in a collective until rank 1 comes to it at 3/4 of it."""
    waiting = bytes([COMPUTE] * 32 + [WAIT] * 16 + [TRANSFER] * 16)
    late = bytes([COMPUTE] * 48 + [TRANSFER] * 16)
    rows = tuple((f"rank {rank}", late if rank == 1 else waiting) for rank in range(ranks))
    half, last = SPAN // 2, SPAN // 4
    events = Events(
        rows=("rank 0", "rank 1"),
        lanes=(Lane(0, "stream 7", 2), Lane(0, "thread 1", 2), Lane(1, "stream 7", 2)),
        kinds=("kernel", "comm", "op", "runtime"),
        names=("gemm", "ncclAllReduce", HOSTILE, "cudaLaunchKernel"),
        start=[0, half, 0, 1000, 0, 3 * last],
        dur=[half, half, 900_000, 2000, 3 * last, last],
        kind=[0, 1, 2, 3, 0, 1],
        name=[0, 1, 2, 3, 0, 1],
        event=[5, 6, 7, 8, 5, 6],
        launch=[4, 0, 0, 0, 0, 0],
        wait=[0, last, 0, 0, 0, 0],
        meetings=Meetings(
            [9, 9], [0, 1], [6, 6], [half, 3 * last], [half, last], [last, 0], [0, 0], ("all_reduce · dp",)
        ),
        left_out=12,
    )
    return Strips("rows", "Rows", 10**18, 10**18 + SPAN, BINS, LINES, rows, ((3, 10**18 + half),), events=events)


@pytest.fixture
def show(open_page: OpenPage, tmp_path: Path) -> Show:
    def shown(block: Block, *before: Result, **look: object) -> Tab:
        file = tmp_path / "page.html"
        with file.open("w", encoding="utf-8") as stream:
            write_page(Page("made", (*before, Result("made", "Made", "It is made.", (block,))), GLOSSARY), stream)
        tab = open_page(file, **look)
        tab.locator(f"[data-block={block.name}]").scroll_into_view_if_needed()
        tab.locator(".timeline .rows canvas").wait_for()
        painted(tab)
        return tab

    return shown


def painted(tab: Tab) -> None:
    tab.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def pixel(tab: Tab, share: float, row: int) -> str:
    painted(tab)
    return colour_at(tab, share, AXIS + ROW * row + ROW // 2)


def colour_at(tab: Tab, share: float, y: float) -> str:
    """The variable with the colour at a place, that of stripes also between them; a number for any other colour."""
    theme = "dark" if tab.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") else "light"
    known = {text: name.removesuffix("-ground") for name, text in read_variables(theme).items()}
    text = "#{:02x}{:02x}{:02x}".format(*tab.evaluate(PIXEL, [share, y]))
    return known.get(text, text)


def press(tab: Tab, *keys: str) -> None:
    tab.locator(".timeline .rows canvas").focus()
    for key in keys:
        tab.keyboard.press(key)
    painted(tab)


@pytest.mark.parametrize("look", [{}, {"width": 390, "dark": True}], ids=str)
def test_rows_show_what_each_rank_was_doing(show, look):
    tab = show(strips(), **look)
    assert [pixel(tab, share, 0) for share in (0.25, 0.6, 0.9)] == [BLUE, RED, ORANGE]
    assert [pixel(tab, share, 1) for share in (0.25, 0.6, 0.9)] == [BLUE, BLUE, ORANGE]


@pytest.mark.parametrize(("line", "down"), [("comm.wait", -1), ("comm.bubble", 1)])
def test_waits_are_hatched(show, line, down):
    """3 of 8 pixels are stripe; those of waits rise to the right, those of bubbles fall."""
    tab = show(Strips("rows", "Rows", 0, SPAN, 1, LINES, (("rank 0", bytes([1 + LINES.index(line)])),)))
    square = tab.evaluate(
        """([y]) => {
          const pen = document.querySelector(".timeline .rows canvas").getContext("2d");
          const { data } = pen.getImageData(400, y, 16, 16);
          return Array.from({ length: 256 }, (_, place) => data.slice(4 * place, 4 * place + 3).join());
        }""",
        [AXIS + 2],
    )
    rows = [square[16 * row : 16 * row + 16] for row in range(16)]
    assert sorted(rows[0].count(colour) for colour in set(rows[0])) == [6, 10]
    for row, below in pairwise(rows):
        assert below[1:-1] == (row[:-2] if down > 0 else row[2:])


def test_zoom_and_pan_move_what_is_shown(show):
    tab = show(strips())
    press(tab, "w", "w", "w")
    assert pixel(tab, 0.4, 0) == BLUE
    assert pixel(tab, 0.6, 0) == RED
    press(tab, *["d"] * 40)
    assert pixel(tab, 0.99, 1) == ORANGE
    press(tab, "0")
    assert pixel(tab, 0.1, 1) == BLUE


def test_a_pixel_of_many_bins_has_what_takes_most_of_them(show):
    codes = bytes([COMPUTE, WAIT, WAIT, WAIT] * 4096)
    tab = show(Strips("rows", "Rows", 0, SPAN, len(codes), LINES, (("rank 0", codes),)))
    assert {pixel(tab, share / 10, 0) for share in range(1, 10)} == {RED}


def test_a_kind_can_be_hidden(show):
    tab = show(strips())
    tab.get_by_role("button", name="comm.wait").click()
    assert pixel(tab, 0.6, 0) != RED
    tab.get_by_role("button", name="comm.wait").click()
    assert pixel(tab, 0.6, 0) == RED


def test_a_collective_tells_who_came_when(show):
    tab = show(strips())
    press(tab, "Enter")
    # The first lane stands right below the row: waiting in red, then data moves.
    assert colour_at(tab, 0.6, AXIS + ROW + 3) == RED
    assert colour_at(tab, 0.9, AXIS + ROW + 3) == ORANGE
    box = tab.locator(".timeline .rows canvas").bounding_box()
    tab.mouse.click(box["x"] + 128 + 0.6 * (box["width"] - 128), box["y"] + AXIS + ROW + 7)
    said = tab.locator(".timeline .panel")
    quarter = format_ns(SPAN // 4)
    assert said.locator("strong").inner_text() == "ncclAllReduce"
    assert f"{quarter}, then {quarter} of transfer" in said.inner_text()
    assert "all_reduce · dp: 2 ranks" in said.inner_text()
    rows = [row.split("\t") for row in said.locator("tbody").inner_text().split("\n")]
    assert rows == [["rank 1 (last)", quarter, "0 ns", quarter], ["rank 0", "0 ns", quarter, quarter]]
    assert "into step 3" in said.inner_text()


def test_a_collective_names_its_ranks_where_one_recorded_nothing(show):
    """Events know all ranks of the run, rows of the timeline only those that recorded any time."""
    block = strips()
    known = replace(
        block.events,
        rows=("rank 3", "rank 0", "rank 1"),
        lanes=tuple(replace(lane, row=lane.row + 1) for lane in block.events.lanes),
        meetings=replace(block.events.meetings, row=[1, 2]),
    )
    tab = show(replace(block, events=known), width=1200)
    press(tab, "ArrowUp", "Enter")
    tab.locator(".timeline .search").fill("ncclAllReduce")
    tab.keyboard.press("Enter")
    heads = tab.locator(".panel .meeting tbody th").all_inner_texts()
    assert heads == ["rank 1 (last)", "rank 0"]


def test_kernels_with_long_names_are_not_summed_as_one(show):
    """A page cuts long names, and two of them may be cut to the same."""
    block = strips()
    alike = "k" * 299 + "\u2026"
    events = replace(
        block.events, names=(alike, "ncclAllReduce", alike, "cudaLaunchKernel"), kind=[0, 1, 0, 3, 0, 1], left_out=0
    )
    none = [0] * len(block.rows)
    ones = RowStretches(
        count=[1] * len(block.rows), start=none, rate=[0.0] * len(block.rows), ahead=none,
        kind=[1] * len(block.rows), dur=[SPAN] * len(block.rows), late=none,
    )  # fmt: skip
    tab = show(replace(block, events=events, stretches=ones), width=1200)
    press(tab, "x")
    tab.get_by_role("tab", name="Kernels").click()
    rows = tab.locator(".sheet tbody tr").all_inner_texts()
    assert [row.split("\t")[1] for row in rows] == ["2", "1"]


def test_a_kernel_leads_to_its_launch_and_back(show):
    tab = show(strips())
    tab.locator(".timeline .search").fill("gemm")
    tab.keyboard.press("Enter")
    said = tab.locator(".timeline .panel")
    said.get_by_role("button", name="cudaLaunchKernel").click()
    assert said.locator("strong").inner_text() == "cudaLaunchKernel"
    said.get_by_role("button", name="gemm").click()
    assert said.locator("strong").inner_text() == "gemm"


def test_search_goes_from_hit_to_hit(show):
    tab = show(strips())
    tab.locator(".timeline .search").fill("NCCL")
    found = tab.locator(".timeline output")
    found.get_by_text("2 found").wait_for()
    tab.keyboard.press("Enter")
    assert found.inner_text() == "1 of 2"
    assert "rank 0" in tab.locator(".timeline .panel dl").inner_text()
    tab.keyboard.press("Enter")
    assert "rank 1" in tab.locator(".timeline .panel dl").inner_text()


def test_names_are_text(show):
    tab = show(strips())
    tab.locator(".timeline .search").fill("onerror")
    tab.keyboard.press("Enter")
    assert tab.locator(".timeline .panel strong").inner_text() == HOSTILE


def finding(*evidence: Evidence) -> Result:
    """The result of a finding that rests on this."""
    one = Finding(
        id="late", level="found", cause="late", what="It is late.", lost_ns=9, lost_share=0.1, rank_hours=1.0, usd=None,
        ranks=(1,), evidence=evidence, strength=Strength.STRONG, probability=None, certain_if="", fix="Less of it.",
        lines={"compute": 9},
    )  # fmt: skip
    return Result("found", "Found", "It is found.", (Findings("findings", "Findings", (one,)),))


def follow(tab: Tab, name: str) -> None:
    """Follows a link of the evidence to the timeline, which then has the keyboard."""
    tab.get_by_text("Evidence (1)").click()
    tab.locator(".evidence").get_by_role("button", name=name).click()
    assert tab.locator(".timeline .rows canvas").evaluate("(canvas) => canvas === document.activeElement")


def test_evidence_elsewhere_leads_here(show):
    tab = show(strips(), finding(Evidence("It was seen.", ((1, 6),))))
    follow(tab, "event 6 of rank 1")
    said = tab.locator(".timeline .panel")
    assert said.locator("strong").inner_text() == "ncclAllReduce"
    assert "rank 1" in said.locator("dl").inner_text()


def test_evidence_that_is_left_out_is_said_to_be(show):
    tab = show(strips(), finding(Evidence("It was seen.", ((1, 99),))))
    follow(tab, "event 99 of rank 1")
    assert "Event 99 of rank 1 is not shown here." in tab.locator(".timeline .panel").inner_text()


def test_a_step_that_was_not_recorded_is_said_to_be(show):
    tab = show(strips(), finding(Evidence("It was seen.", (), (1,), (77,))))
    follow(tab, "rank 1, step 77")
    said = tab.locator(".timeline .panel").inner_text()
    assert said == "Step 77 does not start on this timeline. Steps that do: 3."


def test_evidence_of_several_steps_shows_all_of_them(show):
    marks = tuple((number, 10**18 + (number - 1) * SPAN // 4) for number in range(1, 5))
    tab = show(replace(strips(), marks=marks), finding(Evidence("It was seen.", (), (0,), (2, 3))))
    follow(tab, "rank 0, steps 2-3")
    assert [pixel(tab, share, 0) for share in (0.02, 0.48, 0.52, 0.98)] == [BLUE, BLUE, RED, RED]


def test_only_the_main_button_drags(show):
    tab = show(strips())
    press(tab, "w", "w")
    box = tab.locator(".timeline .rows canvas").bounding_box()
    tab.mouse.move(box["x"] + 600, box["y"] + 30)
    before = pixel(tab, 0.9, 0)
    tab.mouse.down(button="right")
    tab.mouse.move(box["x"] + 160, box["y"] + 30)
    assert pixel(tab, 0.9, 0) == before
    tab.mouse.up(button="right")
    said = tab.locator(".timeline .sums")
    assert said.inner_text() == ""
    tab.mouse.down()
    tab.mouse.move(box["x"] + 600, box["y"] + 30)
    tab.mouse.up()
    assert pixel(tab, 0.9, 0) == before, "a drag selects, and moves nothing"
    assert said.inner_text().startswith("Selected: ")
    tab.mouse.move(box["x"] + 160, box["y"] + 30)
    tab.keyboard.down("Shift")
    tab.mouse.down()
    tab.mouse.move(box["x"] + 800, box["y"] + 30)
    assert pixel(tab, 0.9, 0) != before


@pytest.mark.parametrize("dark", [False, True])
def test_on_paper_colours_are_those_of_light_and_are_named(show, dark):
    tab = show(strips(), dark=dark)
    tab.emulate_media(media="print", color_scheme="dark" if dark else "light")
    # Browsers take the picture when those that listen are done, and draw no further frame for it.
    ground = "document.querySelector('.rows canvas').getContext('2d').getImageData(1, 1, 1, 1).data"
    assert tab.evaluate(f"(dispatchEvent(new Event('beforeprint')), [...{ground}])")[:3] == [255, 255, 255]
    assert tab.get_by_role("button", name="comm.wait").is_visible()
    assert not tab.get_by_role("button", name="Zoom in (w)").is_visible()


def test_stretches_are_stepped_through_by_keys(show):
    tab = show(strips())
    press(tab, "Shift+ArrowRight")
    said = tab.locator(".timeline .panel")
    assert said.locator("strong").inner_text() == "comm.wait"
    assert GLOSSARY["comm.wait"] in said.inner_text()
    assert format_ns(SPAN // 4) in said.inner_text()
    press(tab, "Shift+ArrowLeft")
    assert said.locator("strong").inner_text() == "compute"


@pytest.mark.parametrize("width", [1280, 390])
def test_what_the_pointer_is_told_is_not_cut(show, width):
    tab = show(strips(), width=width)
    frame = tab.locator(".timeline .framed").bounding_box()
    for x, row in product((150, frame["width"] - 20), (0, 1)):
        tab.locator(".timeline .rows canvas").hover(position={"x": x, "y": AXIS + ROW * row + ROW // 2})
        tip = tab.locator(".timeline .tip").bounding_box()
        assert frame["x"] <= tip["x"]
        assert tip["x"] + tip["width"] <= frame["x"] + frame["width"]
        assert frame["y"] <= tip["y"]
        assert tip["y"] + tip["height"] <= frame["y"] + frame["height"]


def test_what_is_stepped_to_comes_into_sight(show):
    tab = show(strips())
    press(tab, *"wwwww", *"aaaaaaaaaaaaaaaaaaaaaaaa", "Shift+ArrowRight")
    assert pixel(tab, 0.5, 0) == BLUE
    press(tab, "Shift+ArrowRight")
    assert tab.locator(".timeline .panel strong").inner_text() == "comm.wait"
    assert pixel(tab, 0.5, 0) == RED


def test_a_thousand_rows_scroll_in_a_bounded_box(show):
    tab = show(strips(1000))
    body = tab.locator(".timeline .rows")
    assert body.bounding_box()["height"] < 600
    assert tab.evaluate("document.querySelector('.timeline .rows').scrollHeight") >= 3000
    body.evaluate("(box) => box.scrollTo(0, 1e6)")
    painted(tab)
    assert colour_at(tab, 0.6, AXIS + 438) == RED, "of the last row"


def test_names_of_steps_and_moments_stand_apart_and_whole(show):
    near = tuple((number, 10**18 + number * SPAN // 200) for number in range(1, 6))
    tab = show(replace(strips(), marks=(*near, (9, 10**18 + SPAN // 2))))
    tab.evaluate(WRITTEN)
    press(tab, "0")
    written = tab.evaluate("window.written")
    assert {text for text, _, _ in written if text.startswith("step ")} == {"step 1", "step 9", "step start"}
    width = tab.locator(".timeline .rows canvas").bounding_box()["width"]
    assert all(start + long <= width for _, start, long in written)
    steps = sorted({(start, start + long) for text, start, long in written if text[-1].isdigit() and "step" in text})
    assert all(stop < start for (_, stop), (start, _) in pairwise(steps))
    tab.evaluate("window.written = []")
    tab.set_viewport_size({"width": 390, "height": 900})
    painted(tab)
    assert {"step 1", "step 9"} <= {text for text, _, _ in tab.evaluate("window.written")}


def test_passes_have_no_colour_of_waits_and_bubbles(show):
    items = (Span(0, 0, 4000, "forward", "forward 3"), Span(0, 4000, 8000, "backward", "backward 3"))
    tab = show(Spans("passes", "Passes", 10**18, 10**18 + 8000, ("stage 0",), items))
    colours = {colour_at(tab, share, AXIS + 3) for share in (0.45, 0.95)}
    assert colours == {GREEN, VIOLET}


def test_spans_of_rows_are_drawn_and_told(show):
    said = (("microbatch", "3"),)
    items = (Span(0, 0, 4000, "compute", "forward 3", said), Span(1, 4000, 8000, "comm.wait", "waits"))
    tab = show(Spans("passes", "Passes", 10**18, 10**18 + 8000, ("stage 0", "stage 1"), items))
    assert colour_at(tab, 0.45, AXIS + 3) == BLUE
    assert colour_at(tab, 0.95, AXIS + 37) == RED
    tab.locator(".timeline .search").fill("forward")
    tab.keyboard.press("Enter")
    told = tab.locator(".timeline .panel").inner_text()
    assert "stage 0" in told
    assert "microbatch" in told
    assert format_ns(4000) in told


@pytest.mark.parametrize("span", [2_000_000, 8_000_000_000, 50 * MINUTE, 90 * 60 * MINUTE], ids=format_ns)
def test_moments_on_the_axis_are_those_of_their_places(show, span):
    """Wherever one looks, and however closely."""
    tab = show(Strips("rows", "Rows", 0, span, 1, LINES, (("rank 0", bytes([COMPUTE])),)))
    width = tab.locator(".timeline .rows canvas").bounding_box()["width"] - 128
    tab.evaluate(WRITTEN)
    shown = span
    for zooms in (0, 12, 70):
        tab.evaluate(ZOOM_IN, zooms)
        painted(tab)
        # A timeline that comes to rest meanwhile is painted once more, with the same words at the same places.
        written = dict.fromkeys((text, x) for text, x, _ in tab.evaluate("window.written"))
        moments = [(text, x) for text, x in written if text[0].isdigit()]
        times = [parse_duration(text) if text != "0" else 0 for text, _ in moments]
        assert len(set(times)) == len(moments) >= 3
        shown = max(shown / 1.5**zooms, 20)
        places = [(time - (span - shown) / 2) / shown * width for time in times]
        assert [x - 131 for _, x in moments] == pytest.approx(places, abs=1.5)


def of_two_runs() -> Strips:
    """Rows that are no ranks of this run, as where two are compared."""
    one = strips()
    names = [f"A {name}" for name, _ in one.rows]
    events = replace(one.events, rows=tuple(names))
    return replace(one, rows=tuple(zip(names, (codes for _, codes in one.rows), strict=True)), events=events)


def test_notes_on_rows_that_are_no_ranks_keep_lanes_and_the_area(show):
    tab = show(of_two_runs())
    assert "Drag to select an area. Click" in tab.locator(".timeline .panel").inner_text(), "there are no sums"
    press(tab, "Enter")
    tall = tab.locator(".timeline .rows").bounding_box()["height"]
    press(tab, "x")
    sums = tab.locator(".timeline .sums")
    tab.evaluate(WRITTEN)
    for text in ("here", "there"):
        sums.get_by_role("button", name="Add note").click()
        sums.get_by_role("textbox", name="Note").fill(text)
        tab.keyboard.press("Enter")
        assert sums.inner_text().startswith("Selected: ")
    tab.evaluate("window.written = []")
    press(tab, "ArrowUp")
    assert {"here", "there"} <= {text for text, _, _ in tab.evaluate("window.written")}
    assert tab.locator(".timeline .rows").bounding_box()["height"] == tall
    sums.get_by_role("button", name="Clear").click()
    assert sums.inner_text() == ""
