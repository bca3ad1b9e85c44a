"""Waterfall, ledger, findings and portions in a browser: they show what JSON says, and bars are as long as that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from itertools import combinations, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lostflops.core.estimate import Estimate, Kind, Strength
from lostflops.core.results import (
    Bar,
    Block,
    Evidence,
    Finding,
    Findings,
    Line,
    Lines,
    Page,
    Portion,
    Portions,
    Prediction,
    Result,
    Waterfall,
)
from lostflops.core.units import format_bytes, format_ns, format_percent, format_share
from lostflops.show.pages.glossary import GLOSSARY
from lostflops.show.report.html import write_page

if TYPE_CHECKING:
    from playwright.sync_api import FloatRect, Locator
    from playwright.sync_api import Page as Tab

    from tests.ui.conftest import OpenPage

PIXEL = 1.0
WIDTHS = pytest.mark.parametrize("width", [1280, 390])
Show = Callable[..., "Tab"]


@pytest.fixture
def show(open_page: OpenPage, tmp_path: Path) -> Show:
    """The page of one block."""

    def shown(block: Block, width: int = 1280) -> Tab:
        stream = StringIO()
        write_page(Page("made", (Result("made", "Made", "It is made.", (block,)),), GLOSSARY), stream)
        file = tmp_path / "page.html"
        file.write_text(stream.getvalue(), "utf-8")
        tab = open_page(file, width=width)
        tab.locator(f"[data-block={block.name}]").scroll_into_view_if_needed()
        return tab

    return shown


# Without strokes, which would make all that is drawn a pixel larger.
GEOMETRY = """(shapes) => shapes.map((shape) => {
  const [box, screen] = [shape.getBBox(), shape.getScreenCTM()];
  return { x: box.x + screen.e, y: box.y + screen.f, width: box.width, height: box.height };
})"""


def drawn(of: Locator) -> list[FloatRect]:
    found: list[FloatRect] = of.evaluate_all(GEOMETRY)
    return found


def box(of: Locator) -> FloatRect:
    found = of.bounding_box()
    assert found is not None
    return found


def near(value: float) -> Any:
    return pytest.approx(value, abs=PIXEL)


def right(of: FloatRect) -> float:
    return of["x"] + of["width"]


def bottom(of: FloatRect) -> float:
    return of["y"] + of["height"]


FALL = Waterfall(
    "mfu",
    "From peak to MFU",
    0.4196,
    "",
    "FLOPs as counted, over a peak of 989 TFLOPS.",
    (Bar("comm.wait", 20.5), Bar("idle.host", 0.04), Bar("compute.below_peak", 37.5), Bar("mfu", 41.96)),
)


@WIDTHS
def test_bars_of_the_waterfall_go_down_from_the_whole_to_mfu(show: Show, width: int) -> None:
    tab, told = show(FALL, width), FALL.to_json()
    rows = tab.locator(".fall[data-bar]")
    assert rows.locator(".name").all_inner_texts() == [bar["line"] for bar in told["waterfall"]]
    assert rows.locator(".points").all_inner_texts() == ["20.5%", "<0.1%", "37.5%", "42.0%"]
    assert tab.locator(".reached").inner_text() == f"{format_share(told['value'])} MFU"
    assert tab.locator(".readout").inner_text() == told["convention"]
    track = box(rows.first.locator(".track"))
    bars = drawn(rows.locator(".bar"))
    assert [bar["width"] for bar in bars] == [near(one["points"] / 100 * track["width"]) for one in told["waterfall"]]
    assert right(bars[0]) == near(right(track))
    assert all(right(below) == near(above["x"]) for above, below in pairwise(bars))
    assert bars[-1]["x"] == near(track["x"])
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_a_bar_tells_its_definition_to_pointer_and_keyboard(show: Show) -> None:
    tab = show(FALL)
    words, rows = tab.locator(".readout"), tab.locator(".fall[data-bar]")
    rows.nth(0).focus()
    about = f"20.5% of device peak: {GLOSSARY['comm.wait']}"
    assert words.inner_text() == f"comm.wait {about}"
    assert rows.nth(0).get_attribute("aria-label") == f"comm.wait: {about}"
    tab.keyboard.press("Tab")
    assert GLOSSARY["idle.host"] in words.inner_text()
    rows.nth(3).hover()
    assert GLOSSARY["MFU"] in words.inner_text()


def test_an_unknown_mfu_is_its_reason_and_no_number(show: Show) -> None:
    bars = (Bar("comm.wait", 25.0), Bar("compute", 75.0))
    tab = show(Waterfall("mfu", "MFU", None, "MFU is unknown: no peak.", "", bars))
    assert tab.locator(".reached").inner_text() == "MFU is unknown: no peak."
    assert tab.locator(".waterfall .value").count() == 0
    assert "share of the time of all ranks" in (tab.locator(".share-axis").text_content() or "")


def line(name: str, ns: int, *parts: Line) -> Line:
    return Line(name, ns, ns / 2_000_000, parts)


LEDGER = Lines(
    "ledger",
    "The ledger",
    (
        line("compute", 1_200_000, line("matmul", 900_000), line("constructor", 300_000, line("__proto__", 300_000))),
        line("comm.wait", 799_400, line("rank 7", 789_500), *(line(f"rank {n}", 180) for n in range(8, 63))),
        line("copy", 0),
        line("idle.host", 600),
        line("unexplained", 0),
    ),
    2_000_000,
    4,
    "step",
)


@WIDTHS
def test_the_ledger_sums_and_says_what_json_says(show: Show, width: int) -> None:
    tab, told = show(LEDGER, width), LEDGER.to_json()
    full = [one for one in told["lines"] if one["ns"]]
    rows = tab.locator(".unfolding > details[data-row] > summary")
    assert rows.locator(".name").all_inner_texts() == [one["line"] for one in full]
    assert rows.locator(".figure").all_inner_texts() == [format_ns(round(one["ns"] / 4)) for one in full]
    assert rows.locator(".share").all_inner_texts() == [format_share(one["share"]) for one in full]
    total = tab.locator(".unfolding .total")
    assert total.locator(".figure").inner_text() == format_ns(told["total_ns"] // 4)
    assert tab.locator(".unfolding .head .figure").inner_text() == "per step"
    whole, found = box(rows.first.locator(".track")), drawn(rows.locator(".bar"))
    assert [bar["width"] for bar in found] == [near(one["share"] * whole["width"]) for one in full]
    assert sum(bar["width"] for bar in found) == near(whole["width"])
    assert found[0]["x"] == near(whole["x"])
    assert all(right(one) == near(following["x"]) for one, following in pairwise(found))
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_lines_unfold_into_their_parts_and_empty_ones_are_folded_away(show: Show) -> None:
    tab = show(LEDGER)
    compute = tab.locator("details[data-row=compute]")
    parts = compute.locator(":scope > .inside > [data-row]")
    assert not parts.first.is_visible()
    compute.locator("summary").first.focus()
    tab.keyboard.press("Enter")
    assert compute.locator(".said").first.inner_text() == GLOSSARY["compute"]
    assert parts.locator(".figure").first.inner_text() == format_ns(900_000 // 4)
    whole, first, second, *_ = drawn(compute.locator(".bar"))
    assert first["x"] == near(whole["x"])
    assert right(second) == near(right(whole))
    tab.locator("details[data-row='comm.wait'] > summary").click()
    rest = tab.locator("details[data-row='comm.wait'] > .inside > .row").last
    assert rest.locator(".name").inner_text() == "16 more"
    assert rest.locator(".figure").inner_text() == format_ns(16 * 180 // 4)
    nothing = tab.locator(".nothing")
    assert nothing.locator("summary").inner_text().strip().endswith("2 lines at zero")
    nothing.locator("summary").click()
    assert nothing.locator(".said").inner_text() == "copy, unexplained"


def found(cause: str, gain: tuple[float, float, float], usd: float | None = None) -> Finding:
    low, middle, high = gain
    seen = Evidence("It was seen.", ((3, 71), (3, 72)), (0, 1, 2, 3, 7), (10, 11), ("train.py(7): step",))
    saving = Estimate(middle, low, high, Kind.REPLAYED, "replaying the run")
    expected = Prediction("p-1", "x=y", 47_398_781, 33_179_147, 27_423_674, 38_934_620, 0.01)
    costs = {"lost_ns": 9, "lost_share": 0.179, "rank_hours": 1034.25, "usd": usd}
    unsure = {"level": "suspected", "doubt": "The saving may be zero.", "record": "--steps 8:20"}
    return Finding(
        id=f"{cause}:3", cause=cause, what=f"{cause} is slow.", **costs, ranks=(3,), evidence=(seen,),
        strength=Strength.STRONG, probability=0.93, certain_if="it goes", fix="<b>less</b> of it", lines={"compute": 9},
        saving=saving, prediction=expected,
        **(unsure if low <= 0 else {"level": "found"}),
    )  # fmt: skip


FOUND = Findings(
    "findings",
    "Findings",
    (found("late_rank", (0.2, 0.3, 0.4), 2586.5), found("loader", (-0.1, 0.1, 0.2)), found("tiny", (0.03, 0.04, 0.05))),
    most_shown=2,
)


@WIDTHS
def test_findings_say_what_json_says_on_a_common_scale(show: Show, width: int) -> None:
    tab, told = show(FOUND, width), FOUND.to_json()
    cards = tab.locator(".findings > ol .finding")
    assert [one.get_attribute("data-cause") for one in cards.all()] == ["late_rank", "loader"]
    assert cards.locator(".gain b").all_inner_texts() == [format_percent(told[0]["saving"]["value"])]
    assert "at most 20% of the step, perhaps nothing" in cards.nth(1).inner_text()
    assert "lostflops run --steps 8:20 -- COMMAND" in cards.nth(1).inner_text()
    words = cards.first.inner_text()
    for said in (
        told[0]["what"],
        told[0]["fix"],
        f"{FOUND.items[0].saves}, from 47.4 ms to 33.2 ms, 1,034.2 rank-hours a day ($2,586); based on replaying",
        "it goes",
        "about 93%, by outcomes of other jobs",
    ):
        assert said in words
    assert "$" not in cards.nth(1).inner_text()
    for card, one in [(cards.first, told[0])]:
        scale, interval, best = (drawn(card.locator(f".range {part}"))[0] for part in (".scale", ".interval", ".best"))
        expected = one["saving"]
        per_share = scale["width"] / 0.4
        assert interval["x"] == near(scale["x"] + expected["low"] * per_share)
        assert interval["width"] == near((expected["high"] - expected["low"]) * per_share)
        assert best["x"] == near(scale["x"] + expected["value"] * per_share)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


GAINS = (
    (0.07, 0.215, 0.352),
    (0.004, 0.03, 0.2),
    (0.0094, 0.0095, 0.0099),
    (0.0001, 0.0002, 0.0004),
    (0.5, 0.996, 1.0),
    (-0.1, 0.1, 0.2),
)


def test_a_saving_reads_as_in_python(show: Show) -> None:
    made = tuple(found(f"cause_{place}", gain) for place, gain in enumerate(GAINS))
    guess = {"level": "suspected", "doubt": "It is a guess.", "saving": Estimate(0.05, None, None, Kind.GUESS, "")}
    made += (replace(made[0], saving=Estimate.bound(0.08, "its time")), replace(made[0], **guess))
    cards = show(Findings("findings", "Findings", made)).locator(".finding").all()
    assert [one.saves for card, one in zip(cards, made, strict=True) if one.saves not in card.inner_text()] == []


def test_the_keyboard_opens_findings_and_their_evidence_is_selected(show: Show) -> None:
    tab = show(FOUND)
    more, tiny = tab.locator(".findings .more > summary"), tab.locator("[data-cause=tiny]")
    assert more.inner_text() == "1 more"
    assert not tiny.is_visible()
    more.focus()
    tab.keyboard.press("Enter")
    assert not tiny.locator(".fix").is_visible()
    tab.keyboard.press("Tab")
    tab.keyboard.press("Enter")
    assert tiny.locator(".fix").is_visible()
    tab.keyboard.press("Tab")
    tab.keyboard.press("Enter")
    assert "It was seen." in tiny.locator(".evidence").inner_text()
    assert tiny.locator(".evidence code").inner_text() == "train.py(7): step"
    links = tiny.locator(".evidence button")
    assert links.all_inner_texts() == ["ranks 0-3, 7, steps 10-11", "event 71 of rank 3", "event 72 of rank 3"]
    links.nth(0).click()
    assert tab.evaluate("location.hash") == "#?ranks=0,1,2,3,7&steps=10-11&pinned=0,1,2,3"
    assert tab.locator(".selection-bar > span").inner_text() == "Selected: ranks 0-3, 7, steps 10 to 11"
    links.nth(2).press("Enter")
    assert tab.evaluate("location.hash") == "#?ranks=3&event=3.72&pinned=3&open=3"


def test_no_finding_is_said_calmly(show: Show) -> None:
    tab = show(Findings("findings", "Findings", ()))
    assert tab.locator("[data-block=findings] .calm").inner_text().startswith("No cause was found")


HELD = Portions(
    "owners",
    "Alive at the peak",
    "owner",
    (
        Portion("activations", 600_000, 20, (Portion("layers.0", 350_000, 12), Portion("a" * 80, 250_000, 8))),
        Portion("parameters", 300_000, 9, tuple(Portion(f"layers.{n}", 100_000, 3) for n in range(3))),
        Portion("unattributed", 99_000, 1),
        Portion("batches", 1_000, 1),
        Portion("buffers", 0, 0),
    ),
    1_000_000,
)


@WIDTHS
def test_areas_of_portions_are_bytes_and_fill_the_map(show: Show, width: int) -> None:
    tab, told = show(HELD, width), HELD.to_json()
    tab.locator(".tile").first.wait_for()
    room = box(tab.locator(".portions .map"))
    area = room["width"] * room["height"]
    for owner in told[:-1]:
        tiles = drawn(tab.locator(f"[data-portion={owner['owner']}] .tile > rect"))
        sizes = [part["bytes"] for part in owner["parts"]] or [owner["bytes"]]
        areas = [one["width"] * one["height"] for one in tiles]
        assert areas == [pytest.approx(size / 1_000_000 * area, rel=1e-3) for size in sizes]
    boxes = drawn(tab.locator(".tile > rect"))
    for one, other in combinations(boxes, 2):
        beside = right(one) <= other["x"] + 0.1 or right(other) <= one["x"] + 0.1
        assert beside or bottom(one) <= other["y"] + 0.1 or bottom(other) <= one["y"] + 0.1
    for tile in tab.locator(".tile").all():
        (inside,) = drawn(tile.locator("rect"))
        texts = drawn(tile.locator("text"))
        assert all(right(text) <= right(inside) and bottom(text) <= bottom(inside) for text in texts)
    assert "activations" in tab.locator("[data-portion=activations] text").all_text_contents()
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_the_table_of_portions_sums_to_the_total(show: Show) -> None:
    tab, told = show(HELD), HELD.to_json()
    rows = tab.locator(".unfolding > [data-row] > summary")
    assert rows.locator(".name").all_inner_texts() == [one["owner"] for one in told[:-1]]
    assert rows.locator(".figure").all_inner_texts() == [format_bytes(one["bytes"]) for one in told[:-1]]
    assert rows.locator(".share").all_inner_texts() == [format_share(one["share"]) for one in told[:-1]]
    assert tab.locator(".total .figure").inner_text() == format_bytes(sum(one["bytes"] for one in told))
    assert tab.locator(".nothing summary").inner_text().strip().endswith("1 owner at zero")
    tab.locator(".tile").first.focus()
    assert tab.locator(".readout").inner_text() == "activations, layers.0 350 kB, 35.0%, 12 blocks"
