"""The page around the results: what is always in sight, getting around, tables, words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lostflops.account.facts.kernel_names import short
from lostflops.core.results import Field, Page, Pair, Pairs, Result, Table
from lostflops.show.report.html import write_page
from lostflops.show.report.values import format_value
from tests.ui.seen import settle

if TYPE_CHECKING:
    from playwright.sync_api import Locator
    from playwright.sync_api import Page as Tab

    from tests.ui.conftest import OpenPage

KERNEL = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int, float, float*)"
FIELDS = (Field("name"), Field("wait_ns", "ns"), Field("note"), Field("whole", shown=False))
ROWS = tuple((f"kernel {n:04}", (n * 7919) % 5003 if n % 10 else None, "comm.wait", KERNEL) for n in range(1_500))
# Puts the top of a result so many pixels below the upper quarter of the window, and waits for the next frames.
SCROLL_TO_QUARTER = """([name, below]) => {
  const { top } = document.getElementById(name).getBoundingClientRect();
  scrollBy({ top: top - innerHeight / 4 - below, behavior: "instant" });
  return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
}"""
FIRST_COLUMN = "tbody tr:not(.room) td:first-child"


def filler(name: str) -> Result:
    pairs = Pairs("figures", "Figures", tuple(Pair(f"f{n}", n, "count") for n in range(300)))
    return Result(name, name.title(), f"Verdict of {name}.", (pairs,))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    long = Table("long", "Long", FIELDS, ROWS, left_out=12)
    rows = ((short(KERNEL), KERNEL), *((f"other {n}", f"other {n}") for n in range(20)))
    cut = Table("cut", "Cut", (Field("short"), Field("name", shown=False)), rows)
    results = (
        Result("first", "First", "Mostly comm.wait.", (long, cut), ("A note.",), "lostflops comm 'my run'"),
        *(filler(name) for name in ("second", "third", "fourth")),
        Result("trust", "Trust", "All 4 ranks are good."),
    )
    page = Page("my run", results, {"comm.wait": "a participant is missing"}, (("memory", "no events"),), "trust")
    made = tmp_path_factory.mktemp("page") / "page.html"
    with made.open("w", encoding="utf-8") as stream:
        write_page(page, stream)
    return made


def top(tab: Tab, name: str) -> float:
    return tab.evaluate("(name) => document.getElementById(name).getBoundingClientRect().top", name)


def is_landed(tab: Tab, name: str) -> bool:
    """Whether the heading of a result is just below the header and its strip of links."""
    bottoms = "[...document.querySelectorAll('header, nav')].map((one) => one.getBoundingClientRect().bottom)"
    under = max(tab.evaluate(bottoms))
    heading = tab.evaluate("(name) => document.querySelector(`#${name} h2`).getBoundingClientRect().top", name)
    return under <= top(tab, name) <= heading < under + 40


def lands(tab: Tab, name: str) -> bool:
    """Whether a result comes to the top: those before it are drawn when there is time, and move it."""
    return any(is_landed(tab, name) or tab.wait_for_timeout(100) for _ in range(50))


def names(table: Locator) -> list[str]:
    return table.locator(FIRST_COLUMN).all_text_contents()


@pytest.mark.parametrize("width", [1280, 390])
def test_trust_is_always_in_sight_and_leads_to_its_section(file: Path, open_page: OpenPage, width: int) -> None:
    tab = open_page(file, width=width)
    tab.evaluate("scrollTo(0, 3000)")
    standing = tab.locator("header").get_by_text("All 4 ranks are good.")
    assert standing.bounding_box()["y"] >= 0
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    standing.click()
    assert tab.url.endswith("#trust")
    assert lands(tab, "trust")
    tab.get_by_role("link", name="Not available").click()
    assert 0 < tab.get_by_text("no events").bounding_box()["y"] < 300


def test_the_keyboard_in_the_header_does_not_scroll_the_page(file: Path, open_page: OpenPage) -> None:
    tab = open_page(f"{file.resolve().as_uri()}#third")
    assert lands(tab, "third")
    before = tab.evaluate("scrollY")
    for control in ("header select", "header button:visible", "nav a"):
        tab.locator(control).first.focus()
        assert tab.evaluate("scrollY") == before, control


def test_links_and_keys_land_where_they_say(file: Path, open_page: OpenPage) -> None:
    tab = open_page(f"{file.resolve().as_uri()}#third")
    assert lands(tab, "third")
    tab.keyboard.press("j")
    assert tab.url.endswith("#fourth")
    assert lands(tab, "fourth")
    tab.keyboard.press("k")
    tab.keyboard.press("k")
    assert lands(tab, "second")
    tab.locator("nav [aria-current]", has_text="Second").wait_for()  # marked when the browser reports the scroll
    tab.get_by_role("navigation").get_by_role("link", name="Trust").click()
    assert lands(tab, "trust")
    tab.keyboard.press("?")
    assert tab.get_by_role("dialog").get_by_text("next result").is_visible()
    tab.keyboard.press("Escape")
    assert not tab.get_by_role("dialog").is_visible()


def test_what_is_far_away_is_drawn_later_and_found_by_the_browser(file: Path, open_page: OpenPage) -> None:
    tab = open_page(file)
    tab.locator("#fourth dd").last.wait_for(state="attached")
    assert tab.locator("#fourth dd").last.text_content() == "299"


def test_a_table_is_sorted_by_mouse_and_keyboard(file: Path, open_page: OpenPage) -> None:
    tab = open_page(file)
    table = tab.locator("[data-block=long]")
    known = [row for row in ROWS if row[1] is not None]
    assert names(table) == [row[0] for row in ROWS[:20]]
    head = table.get_by_role("columnheader", name="wait")
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert names(table) == [row[0] for row in sorted(known, key=lambda row: -row[1])[:20]]
    tab.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert names(table) == [row[0] for row in sorted(known, key=lambda row: row[1])[:20]]
    tab.keyboard.press("Enter")
    assert names(table) == [row[0] for row in ROWS[:20]]
    assert head.get_by_role("button").evaluate("(button) => button === document.activeElement")


def test_a_long_table_unfolds_without_all_its_rows_in_the_document(file: Path, open_page: OpenPage) -> None:
    tab = open_page(file)
    table = tab.locator("[data-block=long]")
    assert "12 more rows are not on this page." in table.text_content()
    table.get_by_role("button", name="show all 1,500").click()
    assert len(names(table)) < 100
    table.locator(".scroll").evaluate("(box) => box.scrollTo(0, 28 * 700)")
    table.get_by_text("kernel 0705").wait_for()
    first = table.locator("tr", has_text="kernel 0700").bounding_box()
    assert first["height"] == 28
    head = table.locator("thead").bounding_box()
    assert abs(first["y"] - table.locator(".scroll").bounding_box()["y"] - head["height"]) < 2
    table.locator(".scroll").evaluate("(box) => box.scrollTo(0, box.scrollHeight)")
    table.get_by_text("kernel 1499").wait_for()
    assert names(table)[-1] == "kernel 1499"
    assert len(names(table)) < 100


def test_rows_are_filtered_and_more_columns_are_one_click_away(file: Path, open_page: OpenPage) -> None:
    tab = open_page(file)
    table = tab.locator("[data-block=long]")
    tab.keyboard.press("/")
    tab.keyboard.type("kernel 07")
    assert names(table) == [row[0] for row in ROWS[700:720]]
    assert "100 of 1,500 rows." in table.text_content()
    tab.keyboard.press("Escape")
    assert table.get_by_role("columnheader").count() == 3
    table.get_by_label("1 more column").check()
    assert table.get_by_role("columnheader").count() == 4
    cell = table.locator("td.name").first
    assert cell.get_attribute("title") == KERNEL
    assert len(cell.text_content()) < 60
    shown = table.locator("tbody tr").nth(1).locator("td.number").text_content()
    assert shown == format_value(ROWS[701][1], "ns")


def test_a_name_that_was_cut_is_told_whole_and_found_by_any_part(file: Path, open_page: OpenPage) -> None:
    table = open_page(file).locator("[data-block=cut]")
    cell = table.locator("td").first
    assert cell.get_attribute("title") == KERNEL
    simple = KERNEL.removeprefix("void ").replace("at::native::", "")
    assert cell.text_content() == f"{simple[:24]}…{simple[-19:]}"
    table.get_by_label("Filter rows").fill("functor_add")
    assert table.locator("tbody td").count() == 1


def test_a_column_that_says_nothing_is_shown_only_on_request(open_page: OpenPage, tmp_path: Path) -> None:
    fields = (Field("op"), Field("latency_ns", "ns"), Field("mark"), Field("calls", "count"))
    table = Table("fits", "Fits", fields, (("send", None, "", 3), ("recv", None, None, 4)))
    file = tmp_path / "page.html"
    with file.open("w", encoding="utf-8") as stream:
        write_page(Page("made", (Result("made", "Made", "It is made.", (table,)),), {}), stream)
    tab = open_page(file)
    heads = tab.locator("[data-block=fits] th")
    assert heads.all_inner_texts() == ["op", "calls"]
    tab.get_by_label("2 more columns").check()
    assert heads.all_inner_texts() == ["op", "latency", "mark", "calls"]


@pytest.mark.parametrize("below", [30, -30])
def test_the_strip_marks_what_is_in_the_upper_quarter(file: Path, open_page: OpenPage, below: int) -> None:
    """While the result before it is in sight too."""
    tab = open_page(file)
    settle(tab)
    tab.evaluate(SCROLL_TO_QUARTER, ["second", -below])
    tab.evaluate(SCROLL_TO_QUARTER, ["second", below])
    tab.locator("nav [aria-current]", has_text="First" if below > 0 else "Second").wait_for()


def test_words_tell_their_meaning_by_mouse_and_keyboard(file: Path, open_page: OpenPage) -> None:
    tab = open_page(file)
    meaning = tab.get_by_role("tooltip")
    assert not meaning.is_visible()
    tab.locator("#first .verdict .term").hover()
    assert meaning.text_content() == "a participant is missing"
    tab.keyboard.press("Escape")
    assert not meaning.is_visible()
    word = tab.locator("[data-block=long] td .term").first
    tab.mouse.move(600, 700)
    tab.evaluate("scrollTo(0, document.body.scrollHeight)")
    word.focus()  # and scrolls to it
    word.scroll_into_view_if_needed()
    assert meaning.is_visible()
    assert abs(meaning.bounding_box()["y"] - word.bounding_box()["y"]) < 60
    assert word.get_attribute("aria-describedby") == meaning.get_attribute("id")


def test_the_theme_is_that_of_the_system_until_it_is_chosen(file: Path, open_page: OpenPage) -> None:
    tab = open_page(file, dark=True)
    colour = "getComputedStyle(document.documentElement).backgroundColor"
    assert tab.evaluate(colour) == "rgb(20, 23, 28)"
    tab.evaluate("document.addEventListener('lostflops-theme', () => (document.title = 'told'))")
    tab.get_by_label("Theme").select_option("light")
    assert tab.evaluate(colour) == "rgb(255, 255, 255)"
    assert tab.title() == "told"


def test_a_command_is_copied_or_selected(file: Path, open_page: OpenPage) -> None:
    tab = open_page(file)
    tab.locator("#first .next").get_by_role("button", name="copy").click()
    done = tab.locator("#first .next").get_by_text("copied").or_(tab.locator("#first .next").get_by_text("selected"))
    done.wait_for()
    if done.text_content() == "selected":
        assert tab.evaluate("getSelection().toString()") == "lostflops comm 'my run'"


def test_paper_is_light_and_complete(file: Path, open_page: OpenPage) -> None:
    tab = open_page(file, dark=True)
    tab.emulate_media(media="print", color_scheme="dark")
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert tab.locator("#fourth dd").count() == 300
    assert tab.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.get_by_role("columnheader", name="wait").is_visible()
    assert not tab.get_by_role("navigation").is_visible()
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert tab.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(20, 23, 28)"
