"""A page at the width of a phone: nothing that is read is cut off, and nothing that people look for is out of sight."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lostflops.core.results import Field, Page, Result, Table
from lostflops.show.pages.glossary import GLOSSARY
from lostflops.show.report.html import write_page

if TYPE_CHECKING:
    from playwright.sync_api import Page as Tab

    from tests.ui.conftest import OpenPage

NAME = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int, float)"
COMMAND = "lostflops whatif a-run-with-a-rather-long-name --list --json"
KERNELS = Table(
    "kernels",
    "By name (dp 4)",
    (Field("kernel"), Field("count", "count"), Field("ns", "ns", "time")),
    ((NAME, 16, 5_000),),
)

REASONS = Table(
    "reasons",
    "",
    (Field("change"), Field("reason")),
    (
        (
            "bucket_mb, accumulate, compression, first_bucket_mb, no_sync",
            "no reduction of gradients was recorded: " * 2,
        ),
        ("1@0-3", "the host waits for no small collective"),
    ),
)


@pytest.fixture
def phone(open_page: OpenPage, tmp_path: Path) -> Tab:
    verdict = "No memory events were recorded. To record them: lostflops run --with memory -- CMD"
    result = Result("made", "Made", verdict, (KERNELS, REASONS), next_command=COMMAND)
    file = tmp_path / "page.html"
    with file.open("w", encoding="utf-8") as stream:
        write_page(Page("made", (result,), GLOSSARY), stream)
    return open_page(file, width=390)


def test_numbers_stand_beside_long_names(phone: Tab) -> None:
    cells = phone.locator("[data-block=kernels] tbody td")
    assert cells.first.get_attribute("title") == NAME
    edges = cells.evaluate_all("cells => cells.map((cell) => cell.getBoundingClientRect().right)")
    assert len(edges) == 3
    assert max(edges) <= 390


def test_two_columns_of_sentences_fit(phone: Tab) -> None:
    cells = phone.locator("[data-block=reasons] tbody td")
    assert cells.count() == 4
    lines = "(cell) => { const all = new Range(); all.selectNodeContents(cell); return all.getClientRects().length; }"
    assert (cells.nth(2).evaluate(lines), cells.nth(3).evaluate(lines)) == (1, 2), "a name of a group is no sentence"
    assert max(cells.evaluate_all("cells => cells.map((cell) => cell.getBoundingClientRect().right)")) <= 390


def test_a_command_is_whole(phone: Tab) -> None:
    code = phone.locator(".next code")
    assert code.inner_text().split() == COMMAND.split()
    box = code.bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= 390
    assert code.evaluate("code => code.scrollWidth <= code.clientWidth")


def test_no_line_ends_inside_an_option(phone: Tab) -> None:
    options = phone.locator("article .unbroken")
    assert options.all_text_contents() == ["--with", "--", "--list", "--json"]
    assert options.evaluate_all("all => all.map((one) => one.getClientRects().length)") == [1] * 4


def test_the_page_does_not_scroll_sideways(phone: Tab) -> None:
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390


def test_abbreviations_of_a_heading_are_explained(phone: Tab) -> None:
    phone.locator("[data-block=kernels] [data-term=dp]").focus()
    assert phone.locator("#meaning").inner_text() == GLOSSARY["dp"]
