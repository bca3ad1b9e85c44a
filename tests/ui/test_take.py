"""What is taken along from a page: pictures of charts, exact tables, a link, and an excerpt in Markdown."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

import lostflops
from lostflops.core.estimate import Estimate, Strength
from lostflops.core.results import (
    Evidence,
    Field,
    Finding,
    Findings,
    HeatMap,
    Line,
    Lines,
    Page,
    Plot,
    Result,
    Series,
    Table,
)
from lostflops.core.units import format_ns
from lostflops.show.report.html import write_page
from lostflops.store.run import Run
from lostflops.testing import SyntheticCluster, store
from tests.ui.saved import read_csv, save

if TYPE_CHECKING:
    from playwright.sync_api import Page as Tab

    from tests.ui.conftest import OpenPage

MS = 1_000_000
LARGE = 2**60 + 1
LEDGER = Lines(
    "ledger",
    "The ledger",
    (
        Line("compute", 300 * MS, 0.75, (Line("matmul", 200 * MS + 1, 0.5), Line("other", 100 * MS - 1, 0.25))),
        Line("comm.wait", 100 * MS, 0.25),
        Line("copy", 0, 0.0),
    ),
    400 * MS,
    4,
    "step",
)
HOSTILE = ("=1+1", "+1", "-1 and", "@sum", 'a "b", c', "two\nlines", "-", "'quoted")
TABLE = Table(
    "names",
    "Names",
    (
        Field("name"),
        Field("wait_ns", "ns"),
        Field("compute", "share"),
        Field("left", "bytes", within="memory", shown=False),
    ),
    tuple((name, -at if at else LARGE, at / 3, None) for at, name in enumerate(HOSTILE)),
)
FINDING = Finding(
    id="late",
    level="found",
    cause="straggler",
    what="Rank 1 is late | <b>by</b> 3 ms.",
    lost_ns=100 * MS,
    lost_share=0.25,
    rank_hours=1.0,
    usd=None,
    ranks=(1,),
    evidence=(Evidence("late"),),
    strength=Strength.STRONG,
    probability=None,
    certain_if="",
    fix="Replace `rank_1`.",
    lines={"comm.wait": 100 * MS},
    saving=Estimate.measured(0.2, 0.1, "timed steps"),
)
RESULTS = (
    Result(
        "report", "Report", "Waiting takes 25% of the time.", (LEDGER, Findings("findings", "Findings", (FINDING,)))
    ),
    Result(
        "other",
        "Other",
        "More.",
        (
            TABLE,
            Table("empty", "Empty", (Field("a"),), ()),
            HeatMap(
                "heat",
                "Heat",
                (("0", (0.125, None)), ("1", (1 / 3, 1.0))),
                "share",
                "time",
                ("a", "b"),
                "rank",
                "phase",
            ),
            Plot(
                "plot",
                "Plot",
                Field("bytes", "bytes"),
                Field("ns", "ns"),
                (Series("s", "marks", ((1.0, 2.0), (3.0, 4.5))),),
            ),
        ),
    ),
)
COLOURS = """async (png) => {
  const image = new Image();
  image.src = `data:image/png;base64,${png}`;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height);
  const pen = canvas.getContext("2d");
  pen.drawImage(image, 0, 0);
  const { data } = pen.getImageData(0, 0, image.width, image.height);
  const found = {};
  for (let at = 0; at < data.length; at += 4) {
    const colour = `rgb(${data[at]}, ${data[at + 1]}, ${data[at + 2]})`;
    found[colour] = (found[colour] ?? 0) + 1;
  }
  return { width: image.width, height: image.height, found };
}"""
FILL = "one => getComputedStyle(one).fill"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "page.html"
    with made.open("w", encoding="utf-8") as stream:
        write_page(Page("my/run: 1", RESULTS, {}), stream)
    return made


@pytest.fixture
def tab(open_page: OpenPage, file: Path) -> Tab:
    return drawn(open_page(file))


def drawn(tab: Tab) -> Tab:
    tab.locator("[data-block=plot] svg").first.wait_for(state="attached")
    return tab


def block(tab: Tab, name: str) -> Any:
    return tab.locator(f"[data-block={name}]")


def test_a_table_is_saved_exactly_and_no_cell_is_a_formula(tab: Tab) -> None:
    saved = save(block(tab, "names"), "CSV")
    assert saved.name == "my-run-1-other-names.csv"
    heads, *rows = read_csv(saved)
    assert heads == ["name", "wait_ns", "compute_share", "memory.left_bytes"]
    assert [row[0] for row in rows] == ["'=1+1", "'+1", "'-1 and", "'@sum", *HOSTILE[4:6], "'-", HOSTILE[7]]
    assert [int(row[1]) for row in rows] == [LARGE, *(-at for at in range(1, len(HOSTILE)))]
    assert [float(row[2]) for row in rows] == [at / 3 for at in range(len(HOSTILE))]
    assert {row[3] for row in rows} == {""}
    assert saved.read_bytes().count(b"\r\n") == 1 + len(HOSTILE)


def test_charts_are_saved_as_rows_too(tab: Tab) -> None:
    assert read_csv(save(block(tab, "ledger"), "CSV")) == [
        ["line", "part", "ns", "share"],
        ["compute", "", "300000000", "0.75"],
        ["compute", "matmul", "200000001", "0.5"],
        ["compute", "other", "99999999", "0.25"],
        ["comm.wait", "", "100000000", "0.25"],
        ["copy", "", "0", "0"],
    ]
    assert read_csv(save(block(tab, "heat"), "CSV")) == [
        ["rank", "phase", "value_share"],
        ["0", "a", "0.125"],
        ["0", "b", ""],
        ["1", "a", str(1 / 3)],
        ["1", "b", "1"],
    ]
    assert read_csv(save(block(tab, "plot"), "CSV")) == [["series", "bytes", "ns"], ["s", "1", "2"], ["s", "3", "4.5"]]


@pytest.mark.parametrize("dark", [False, True])
def test_a_chart_is_saved_as_svg_that_needs_no_page(open_page: OpenPage, file: Path, dark: bool) -> None:
    tab = drawn(open_page(file, dark=dark))
    saved = save(block(tab, "ledger"), "SVG")
    assert saved.name == "my-run-1-report-ledger.svg"
    text = saved.read_text("utf-8")
    assert not re.search(r"var\(|class=|style=|<script|<foreignObject|href=", text)
    tree = ET.fromstring(text)
    written = [one.text for one in tree.iter(f"{SVG}text")]
    assert {"The ledger", "compute", "comm.wait", "75.0%", format_ns(25 * MS)} <= set(written)
    assert not {"Save", "PNG"} & set(written)
    fills = {one.get("fill") for one in tree.iter() if one.get("fill")}
    for line in ("compute", "comm.wait"):
        shown = block(tab, "ledger").locator(f"[data-row='{line}'] .bar").first.evaluate(FILL)
        assert as_hex(shown) in fills
    assert tree.find(f"{SVG}rect").get("fill") == as_hex(
        tab.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    )


def as_hex(colour: str) -> str:
    """
    >>> as_hex("rgb(0, 114, 178)")
    '#0072b2'
    """
    return "#" + "".join(f"{int(part):02x}" for part in re.findall(r"\d+", colour)[:3])


def test_a_picture_in_pixels_shows_the_chart_and_nothing_moves(tab: Tab) -> None:
    tab.set_viewport_size({"width": 1280, "height": 500})
    block(tab, "ledger").locator(".save").scroll_into_view_if_needed()
    before = tab.evaluate("scrollY")
    saved = save(block(tab, "ledger"), "PNG")
    assert tab.evaluate("scrollY") == before
    assert tab.locator(".taking").count() == 0
    shown = tab.evaluate(COLOURS, b64encode(saved.read_bytes()).decode())
    wide = block(tab, "ledger").bounding_box()["width"]
    assert shown["width"] == pytest.approx(2 * (wide + 24), abs=4)
    bar = block(tab, "ledger").locator("[data-row='compute'] .bar").first
    box = bar.bounding_box()
    assert shown["found"][bar.evaluate(FILL)] == pytest.approx(4 * box["width"] * box["height"], rel=0.1)


def test_a_canvas_is_saved_as_png_with_its_legend(tab: Tab) -> None:
    heat = block(tab, "heat")
    saved = save(heat, "PNG")
    assert heat.locator(".menu-items button").all_text_contents() == ["PNG", "CSV"]
    shown = tab.evaluate(COLOURS, b64encode(saved.read_bytes()).decode())
    assert len(shown["found"]) > 50, "the ramp of the legend alone has more colours"


def test_what_has_nothing_to_save_has_no_menu(tab: Tab) -> None:
    assert [one for one in ("empty", "findings") if block(tab, one).locator(".save").count()] == []


def test_the_keyboard_saves(tab: Tab) -> None:
    button = block(tab, "ledger").locator("summary[aria-label='Save The ledger']")
    button.focus()
    tab.keyboard.press("Enter")
    tab.keyboard.press("Escape")
    assert not block(tab, "ledger").get_by_role("button", name="PNG").is_visible()
    assert button.evaluate("one => one === document.activeElement")
    tab.keyboard.press("Enter")
    for _ in range(3):
        tab.keyboard.press("Tab")
    with tab.expect_download() as started:
        tab.keyboard.press("Enter")
    assert started.value.suggested_filename == "my-run-1-report-ledger.csv"
    tab.wait_for_function("() => document.activeElement.textContent === 'Save'")


def copied(tab: Tab, what: str) -> str:
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab.locator("summary", has_text="Share").click()
    tab.get_by_role("button", name=what).click()
    tab.get_by_text("Copied").wait_for()
    return str(tab.evaluate("navigator.clipboard.readText()"))


def test_an_excerpt_says_what_is_looked_at(open_page: OpenPage, file: Path) -> None:
    tab = open_page(
        f"{file.as_uri()}#?ranks=0,1,2,7&steps=3-5&time=1000000-2500000&changes=launch:free&notes=1500000:a*b"
    )
    assert copied(tab, "Copy as Markdown") == (
        "# my/run: 1\n\n"
        "Waiting takes 25% of the time.\n\n"
        "Selected: ranks 0-2, 7; steps 3 to 5; 1.50 ms from 1.00 ms; with launch=free.\n\n"
        "- At 1.50 ms: a\\*b\n\n"
        "## Findings\n\n"
        "1. **Rank 1 is late \\| \\<b\\>by\\</b\\> 3 ms.**\n"
        "   - Saves: 20% of the step (10 to 30%)\n"
        "   - Fix: Replace \\`rank\\_1\\`.\n\n"
        "## The ledger, whole run\n\n"
        "| line | time per step | share |\n"
        "| --- | ---: | ---: |\n"
        "| compute | 75.0 ms | 75.0% |\n"
        "| comm.wait | 25.0 ms | 25.0% |\n"
        "| total | 100 ms | 100.0% |\n"
    )


def test_a_copied_link_is_the_address(open_page: OpenPage, file: Path) -> None:
    tab = open_page(f"{file.as_uri()}#other")
    assert copied(tab, "Copy link") == f"{file.as_uri()}#other"


SERVE = [sys.executable, "-c", "from lostflops.cli.main import main; main()", "serve"]
ODD = (
    "select -5 as small, 9007199254740993 as large, '=x' as name, 1.5e-7 as fine, null as no, 'a,b' as two, true as yes"
)


@pytest.mark.slow
def test_what_sql_gives_is_saved_exactly(open_page: OpenPage, tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="the extra serve is not installed")
    run = store(SyntheticCluster(ranks=2, steps=3).generate(), tmp_path / "run")
    query = "select rank, name, start, dur from events order by all limit 500"
    with Run.open(run) as opened:
        events = opened.rows(query)
    environment = os.environ | {"PYTHONPATH": str(Path(lostflops.__file__).parents[1])}
    with subprocess.Popen(
        [*SERVE, str(run), "--no-browser"], stdout=subprocess.PIPE, text=True, env=environment
    ) as server:
        assert server.stdout is not None
        tab = open_page(next(line.strip() for line in server.stdout if "http://" in line))
        tab.locator("html[data-complete=yes]").wait_for(state="attached", timeout=120_000)
        assert asked(tab, query)[1:] == [list(map(str, row)) for row in events]
        assert asked(tab, ODD)[1] == ["-5", "9007199254740993", "'=x", "1.5e-7", "", "a,b", "true"]
        server.kill()


def asked(tab: Tab, query: str) -> list[list[str]]:
    tab.locator("#sql textarea").fill(query)
    with tab.expect_response("**/api/sql"):
        tab.locator("#sql").get_by_role("button", name="Run", exact=True).click()
    saved = save(tab.locator(".sql-answer"), "CSV")
    assert saved.name == "run-sql-result.csv"
    return read_csv(saved)
