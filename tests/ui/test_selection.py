"""One selection for the whole page: it is in the address, every view shows it, and Back undoes it."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lostflops.core.pictures import Strips
from lostflops.core.results import FindingPlace, Findings, HeatMap, Page, Result
from lostflops.show.pages.page import QUESTIONS, page_of
from lostflops.show.report.html import write_page
from lostflops.store.run import Run
from tests.ui.made_run import hosted_run
from tests.ui.seen import CANVAS, SMOOTHED, difference, drawn, look_alike, picture, settle, show_first

if TYPE_CHECKING:
    from playwright.sync_api import Page as Tab

    from tests.ui.conftest import OpenPage

ASKED = ("overview", "timeline", "diagnosis", "ranks", "lateness", "steps")
LATEST_FIRST = [2, 5, 0, 3, 1, 7, 4, 6]
# Words at the left edge of the timeline, from its top.
LABELS = """async (canvas) => {
  const [write, found] = [CanvasRenderingContext2D.prototype.fillText, []];
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...rest) {
    if (this.canvas === canvas && x === 5) found.push([y, text.replace(/^[▸▾] /, "")]);
    return write.call(this, text, x, y, ...rest);
  };
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  await frame();
  await frame();
  found.length = 0;
  canvas.dispatchEvent(new FocusEvent("focus"));
  await frame();
  await frame();
  CanvasRenderingContext2D.prototype.fillText = write;
  return found.sort(([one], [other]) => one - other).map(([, text]) => text);
}"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    with Run.open(hosted_run(tmp_path_factory.mktemp("hosted"))) as run:
        return page_of(run, {name: QUESTIONS[name] for name in ASKED})


@pytest.fixture(scope="module")
def strips(page: Page) -> Strips:
    return next(block for block in page.results[1].blocks if isinstance(block, Strips))


@pytest.fixture(scope="module")
def place(page: Page) -> FindingPlace:
    """Where the first finding happened."""
    cards = next(block for block in page.results[0].blocks if isinstance(block, Findings))
    assert cards.places[0] is not None
    return cards.places[0]


@pytest.fixture(scope="module")
def file(page: Page, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("page") / "page.html"
    with made.open("w", encoding="utf-8") as stream:
        write_page(page, stream)
    return made


def words(tab: Tab) -> str:
    """What the bar in the header says; nothing where it is not there."""
    bar = tab.locator("header .selection-bar")
    return bar.locator("> span").inner_text() if bar.is_visible() else ""


def rows(tab: Tab) -> list[int]:
    """Ranks of the rows of the timeline, from the top."""
    texts = drawn(tab).evaluate(LABELS)
    return [int(text.removeprefix("rank ")) for text in texts if text.startswith("rank ")]


def scroll_and_zoom(tab: Tab) -> None:
    """Moves in all ways that there are."""
    tab.locator("#timeline .tools select").select_option("by host")
    tab.locator("#timeline .tools .filter").fill("0-6")
    settle(tab)
    tab.locator(CANVAS).focus()
    for key in ("w", "w", "d", "ArrowDown", "Enter", "ArrowDown", "Enter", "ArrowDown", "Enter", "p"):
        tab.keyboard.press(key)
    settle(tab)
    tab.locator("#timeline .timeline .rows").evaluate("(box) => box.scrollTo(0, 70)")
    tab.wait_for_function("() => location.hash.includes('top=70')")
    settle(tab)


@pytest.mark.parametrize(
    ("moves", "look"),
    [
        pytest.param(False, {"width": 390, "dark": True}, id="shown-phone"),
        pytest.param(True, {}, id="moved"),
        pytest.param(False, {}, id="shown", marks=pytest.mark.slow),
        pytest.param(True, {"width": 390, "dark": True}, id="moved-phone", marks=pytest.mark.slow),
    ],
)
def test_a_copied_address_shows_the_same_pixels(open_page: OpenPage, file: Path, moves: bool, look: dict) -> None:
    tab = open_page(file, **look)
    show_first(tab)
    if moves:
        scroll_and_zoom(tab)
    copied = open_page(tab.url, **look)
    assert look_alike(tab, copied)
    seen = picture(tab)
    assert copied.url == tab.url
    assert words(copied) == words(tab)
    untouched = open_page(file, **look)
    assert difference(untouched, seen, picture(untouched)) > 1000, "something else was to be seen"


def test_show_me_shows_the_stall_and_who_waits_for_it(open_page: OpenPage, file: Path, place: FindingPlace) -> None:
    assert place.wait is not None
    tab = open_page(file)
    show_first(tab)
    assert rows(tab)[:2] == [place.rank, place.victim]
    assert words(tab).startswith(f"Selected: ranks {min(place.rank, place.victim)}, {max(place.rank, place.victim)}")
    for part in (f"event={place.rank}.{place.event}", f"time={place.wait[0]}-{place.wait[1]}"):
        assert part in tab.url
    panel = tab.locator("#timeline .panel")
    assert f"rank {place.rank}" in panel.locator("dl").inner_text()
    assert str(place.event) in panel.locator("dl").inner_text()


def test_show_me_goes_there_again_after_somebody_scrolled_away(open_page: OpenPage, file: Path) -> None:
    tab = open_page(file)
    show_first(tab)
    there = tab.evaluate("scrollY")
    for card in (0, 0):
        tab.evaluate("scrollTo(0, 0)")
        tab.locator("#overview .card").nth(card).get_by_role("button", name="Show me").click()
        settle(tab)
        assert tab.evaluate("scrollY") == pytest.approx(there, abs=30)
    tab.evaluate("scrollTo(0, document.body.scrollHeight)")
    tab.locator("header").get_by_role("button", name="Show on timeline").click()
    assert tab.evaluate("scrollY") == pytest.approx(there, abs=30)


def test_back_undoes_step_by_step(open_page: OpenPage, file: Path) -> None:
    tab = open_page(file)
    seen = []

    def note() -> None:
        settle(tab)
        seen.append((words(tab), rows(tab), tab.url))

    note()
    show_first(tab)
    note()
    tab.locator("#ranks").get_by_role("button", name="7", exact=True).first.click()
    note()
    tab.locator("#timeline .tools select").select_option("by rank")
    note()
    tab.locator("header").get_by_role("button", name="Clear").click()
    note()
    assert len({state[2] for state in seen}) == len(seen)
    for wanted in reversed(seen[:-1]):
        tab.go_back()
        settle(tab)
        assert (words(tab), rows(tab), tab.url) == wanted
    tab.go_forward()
    settle(tab)
    assert (words(tab), rows(tab), tab.url) == seen[1]


@pytest.mark.parametrize(
    "address",
    [
        "#timeline?time=9-1&ranks=x&event=1",
        "#%",
        "#timeline?%=%&notes=5:%E0%A4%A;x;:;7&steps=1-&pinned=,&top=-1&search=%",
        "#__proto__?constructor=1&__proto__=2&toString=3",
        "#timeline?ranks=&time=&zoom=1e9-2e9&event=1.x&steps=0x1-2&changes=:;=",
        f"#{'x' * 200_000}",
        f"#timeline?ranks={'9,' * 100_000}&zoom={'9' * 100_000}-1",
        "#timeline?zoom=5-5&top=999999999999&order=upside&filter=9-1&pinned=1,1,1,999&open=1,1,77",
    ],
    ids=lambda address: address[:40],
)
@pytest.mark.few(2)
def test_an_address_that_makes_no_sense_selects_nothing(open_page: OpenPage, file: Path, address: str) -> None:
    """And the page says nothing on its console: that is checked wherever a page is opened."""
    tab = open_page(f"{file.resolve().as_uri()}{address}")
    settle(tab)
    assert words(tab) == ""
    assert tab.locator("tr.on").count() == 0
    assert tab.locator("#timeline .sums").inner_text() == ""
    shown = rows(tab)
    assert shown == ([1] if "filter" in address else LATEST_FIRST), "each row once"
    show_first(tab)
    assert words(tab).startswith("Selected: ")


def test_moments_and_ranks_that_are_not_there_are_not_framed(open_page: OpenPage, file: Path) -> None:
    for query in ("time=1-2&ranks=999", "time=999999999998-999999999999"):
        tab = open_page(f"{file.resolve().as_uri()}#timeline?{query}")
        drawn(tab)
        settle(tab)
        assert tab.locator("#timeline .sums").inner_text() == "", query


def ranks_marked(tab: Tab, view: str, column: int = 0) -> list[str]:
    """What rows of the tables of a view that are marked say in a column."""
    return tab.locator(f"#{view} tr.on").evaluate_all(
        "(all, column) => all.map((row) => row.cells[column].textContent)", column
    )


def clear(tab: Tab) -> None:
    tab.locator("header").get_by_role("button", name="Clear").click()
    assert words(tab) == ""
    assert tab.locator("tr.on").count() == 0
    assert "ranks=" not in tab.url
    assert "steps=" not in tab.url


def test_a_cell_of_a_heat_map_selects_its_rank_and_step(open_page: OpenPage, file: Path) -> None:
    tab = open_page(file)
    chart = tab.locator("#lateness [data-block=arrivals_by_step] canvas[role=application]")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box is not None
    place = {"x": 100, "y": box["height"] / 2}
    chart.hover(position=place)
    named, step = tab.locator("#lateness .callout:visible dd").all_inner_texts()
    rank = named.split(" ")[0]
    before = b64encode(chart.screenshot()).decode()
    chart.click(position=place)
    assert words(tab) == f"Selected: rank {rank}, step {step}"
    assert ranks_marked(tab, "steps") == [step]
    assert set(ranks_marked(tab, "ranks")) == {rank}
    tab.mouse.move(2, 2)
    chart.hover(position=place)
    after = b64encode(chart.screenshot()).decode()
    assert difference(tab, before, after) > 20, "the cell is framed"
    clear(tab)
    chart.hover(position=place)
    again = b64encode(chart.screenshot()).decode()
    assert difference(tab, before, again) <= SMOOTHED


@pytest.mark.parametrize(
    ("shape", "selects"),
    [
        (("4", "rank", "step"), "rank 4, step 11"),
        (("4 (dp0,pp1)", "rank (position in the mesh)", "step"), "rank 4, step 11"),
        (("4", "rank", "phase of training"), "rank 4"),
        (("4-7", "ranks", "rank within the row"), "rank 5"),
        (("4-10/2", "ranks", "rank within the row"), "rank 6"),
        (("4-7", "ranks", "block of 2 ranks within the row"), ""),
        (("4", "microbatch", "stage"), ""),
    ],
)
@pytest.mark.few(3)
def test_cells_know_their_ranks_by_what_rows_and_columns_are(
    open_page: OpenPage, tmp_path: Path, shape: tuple[str, str, str], selects: str
) -> None:
    name, down, across = shape
    block = HeatMap("late", "", ((name, (1.0, 2.0, 3.0, 4.0)),), "ns", "made", ("10", "11", "12", "13"), down, across)
    file = tmp_path / "page.html"
    with file.open("w", encoding="utf-8") as stream:
        write_page(Page("made", (Result("made", "Made", "It is made.", (block,)),), {}), stream)
    tab = open_page(file)
    tab.locator(".chart canvas[style*=width]").focus()
    for key in ("Home", "ArrowRight", "Enter"):
        tab.keyboard.press(key)
    assert words(tab).removeprefix("Selected: ") == selects


@pytest.mark.parametrize("key", [False, True], ids=["click", "Enter"])
@pytest.mark.few(1)
def test_a_rank_and_a_step_of_a_table_are_selected(open_page: OpenPage, file: Path, key: bool) -> None:
    tab = open_page(file)

    def choose(view: str, name: str) -> None:
        cell = tab.locator(f"#{view} td").get_by_title(name, exact=True).first
        if key:
            cell.press("Enter")
        else:
            cell.click()
        assert cell.evaluate("(button) => button === document.activeElement"), "the keyboard stays"

    choose("ranks", "Select rank 6")
    assert words(tab) == "Selected: rank 6"
    assert set(ranks_marked(tab, "ranks")) == {"6"}
    choose("steps", "Select step 12")
    assert words(tab) == "Selected: rank 6, step 12"
    assert ranks_marked(tab, "steps") == ["12"]
    settle(tab)
    assert "ranks=6&steps=12-12" in tab.url
    clear(tab)


def test_selected_steps_fill_the_timeline_until_somebody_looks_elsewhere(
    open_page: OpenPage, file: Path, strips: Strips
) -> None:
    tab = open_page(file)
    tab.locator("#steps td").get_by_title("Select step 12", exact=True).first.click()
    settle(tab)
    assert tab.locator("#timeline .sums").inner_text().startswith("Selected: ")
    marks = {number: at - strips.start for number, at in strips.marks}
    start, stop = shown_time(tab)
    assert start == pytest.approx(marks[12], abs=0.02 * (stop - start))
    assert stop == pytest.approx(marks[13], abs=0.02 * (stop - start))
    tab.locator(CANVAS).focus()
    tab.keyboard.press("0")
    settle(tab)
    assert look_alike(tab, open_page(tab.url))


def test_rows_are_in_the_order_that_is_asked_for(open_page: OpenPage, file: Path, strips: Strips) -> None:
    assert sorted(range(8), key=lambda rank: -strips.late[rank]) == LATEST_FIRST
    tab = open_page(file)
    order = tab.locator("#timeline .tools select")
    assert order.locator("option").all_inner_texts() == ["latest first", "by rank", "by host", "by dp", "by stage"]
    assert order.input_value() == "latest first"
    assert rows(tab) == LATEST_FIRST
    order.select_option("by rank")
    assert rows(tab) == list(range(8))
    for way, first, second in (("by host", "host0", "host1"), ("by stage", "pp 0", "pp 1")):
        order.select_option(way)
        texts = drawn(tab).evaluate(LABELS)
        names = [text for text in texts if text.startswith(("rank", first, second))]
        assert names == [first, *(f"rank {n}" for n in range(4)), second, *(f"rank {n}" for n in range(4, 8))]
    order.select_option("latest first")
    assert rows(tab) == LATEST_FIRST
    assert "order" not in tab.url


@pytest.mark.parametrize(
    ("filtered", "kept"),
    [("1, 3-4", [3, 1, 4]), ("6-", [7, 6]), ("host1", [5, 7, 4, 6]), ("pp 0", [2, 0, 3, 1]), ("nothing", [])],
)
@pytest.mark.few(2)
def test_rows_are_filtered_by_rank_or_group(open_page: OpenPage, file: Path, filtered: str, kept: list[int]) -> None:
    tab = open_page(file)
    box = tab.locator("#timeline .tools .filter")
    box.fill(filtered)
    settle(tab)
    assert rows(tab) == kept
    again = open_page(tab.url)
    assert rows(again) == kept
    assert again.locator("#timeline .tools .filter").input_value() == filtered
    box.fill("")
    settle(tab)
    assert rows(tab) == LATEST_FIRST


def test_a_pinned_row_stays_on_top(open_page: OpenPage, file: Path) -> None:
    tab = open_page(file)
    tab.locator(CANVAS).focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "p"):
        tab.keyboard.press(key)
    assert rows(tab) == [3, 2, 5, 0, 1, 7, 4, 6]
    tab.locator("#timeline .tools .filter").fill("7")
    settle(tab)
    assert rows(tab) == [3, 7], "whatever is filtered"
    tab.locator("#timeline .tools .filter").fill("")
    settle(tab)
    tab.locator(CANVAS).focus()
    tab.keyboard.press("p")
    assert rows(tab) == LATEST_FIRST


def shown_time(tab: Tab) -> tuple[int, int] | None:
    """What the address says that the timeline shows; None for all of it."""
    settle(tab)
    found = tab.evaluate("/[?&]zoom=(\\d+)-(\\d+)/.exec(location.hash)?.slice(1).map(Number) ?? null")
    return None if found is None else (found[0], found[1])


@pytest.mark.parametrize(
    "focused",
    [
        pytest.param("#overview .show", id="card"),
        pytest.param("", id="nothing", marks=pytest.mark.slow),
        pytest.param("header .help", id="help", marks=pytest.mark.slow),
    ],
)
def test_keys_work_where_the_pointer_rests(open_page: OpenPage, file: Path, focused: str) -> None:
    tab = open_page(file)
    drawn(tab).hover(position={"x": 400, "y": 60})
    if focused:
        tab.locator(focused).first.evaluate("(button) => button.focus({ preventScroll: true })")
    scrolled = tab.evaluate("scrollY")

    def press(key: str, times: int = 1) -> tuple[int, int] | None:
        for _ in range(times):
            tab.keyboard.press(key)
        return shown_time(tab)

    assert shown_time(tab) is None
    near = press("w", 4)
    assert near is not None
    wide = near[1] - near[0]
    for right, left in (("d", "a"), ("ArrowRight", "ArrowLeft")):
        later = press(right)
        assert later is not None
        assert later[0] - near[0] == pytest.approx(0.15 * wide, rel=0.01)
        assert press(left) == pytest.approx(near, abs=2)
    out = press("s")
    assert out is not None
    assert out[1] - out[0] == pytest.approx(1.5 * wide, rel=0.01)
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("p")
    assert rows(tab)[0] == LATEST_FIRST[1]
    assert press("0") is None
    assert tab.evaluate("scrollY") == scrolled
    tab.mouse.move(2, 2)
    assert press("w") is None, "the pointer is elsewhere"


def test_typing_is_typing_also_over_the_timeline(open_page: OpenPage, file: Path) -> None:
    tab = open_page(file)
    drawn(tab).hover(position={"x": 400, "y": 60})
    tab.locator("#timeline .tools .search").focus()
    tab.keyboard.type("was")
    assert tab.locator("#timeline .tools .search").input_value() == "was"
    assert shown_time(tab) is None


def test_the_keyboard_alone_reaches_the_stall(open_page: OpenPage, file: Path, place: FindingPlace) -> None:
    tab = open_page(file)
    for _ in range(80):
        tab.keyboard.press("Tab")
        if tab.evaluate("document.activeElement.textContent") == "Show me":
            break
    else:
        pytest.fail("no Show me is reached by Tab")
    tab.keyboard.press("Enter")
    assert tab.locator(CANVAS).evaluate("(canvas) => canvas === document.activeElement")
    box = tab.locator(CANVAS).bounding_box()
    assert box is not None
    assert 0 < box["y"] < 900 - 100
    assert f"event={place.rank}.{place.event}" in tab.url
    assert f"rank {place.rank}" in tab.locator("#timeline .panel dl").inner_text()
    settle(tab)
    first = tab.locator("#timeline .panel dl").inner_text()
    tab.keyboard.press("Shift+ArrowRight")
    assert tab.locator("#timeline .panel dl").inner_text() != first, "keys go on from the event"


REFUSE = """() => {
  window.kept = [history.pushState, history.replaceState];
  history.pushState = () => { throw new DOMException("too many", "SecurityError"); };
  history.replaceState = () => {};
}"""
ALLOW = "() => { [history.pushState, history.replaceState] = window.kept; }"


def test_a_selection_outlives_a_browser_that_refuses_addresses(open_page: OpenPage, file: Path) -> None:
    """Safari does so with an error and Chromium without one, where many follow each other fast."""
    tab = open_page(file)
    cell = tab.locator("#ranks td").get_by_title("Select rank 6", exact=True).first
    cell.scroll_into_view_if_needed()
    settle(tab)
    tab.evaluate(REFUSE)
    cell.click()
    assert words(tab) == "Selected: rank 6"
    assert "ranks" not in tab.url
    tab.evaluate(ALLOW)
    tab.wait_for_url("**ranks=6**", timeout=10_000)


def test_back_scrolls_rows_back(open_page: OpenPage, file: Path) -> None:
    tab = open_page(f"{file.resolve().as_uri()}#timeline?open=0,1,2,3")
    drawn(tab)
    box = tab.locator("#timeline .timeline .rows")
    tab.locator("#ranks td").get_by_title("Select rank 6", exact=True).first.click()
    box.evaluate("(box) => box.scrollTo(0, 70)")
    settle(tab)
    tab.go_back()
    settle(tab)
    assert box.evaluate("(box) => box.scrollTop") == 0
    tab.go_forward()
    settle(tab)
    assert box.evaluate("(box) => box.scrollTop") == 70


def test_enter_selects_what_was_just_typed(open_page: OpenPage, file: Path) -> None:
    tab = open_page(file)
    drawn(tab)
    box = tab.locator("#timeline .tools .search")
    box.evaluate(TYPE_AND_ENTER, "gemm")
    assert "search=gemm" in tab.evaluate("location.hash")
    tab.locator("#ranks td").get_by_title("Select rank 6", exact=True).first.click()
    assert box.input_value() == "gemm"
    assert tab.locator("#timeline .searching output").inner_text() != ""


TYPE_AND_ENTER = """(box, text) => {
  box.focus();
  box.value = text;
  box.dispatchEvent(new Event("input"));
  box.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }));
}"""


def test_back_undoes_what_was_typed_where_the_keyboard_is(open_page: OpenPage, file: Path) -> None:
    tab = open_page(file)
    drawn(tab)
    tab.locator("#ranks td").get_by_title("Select rank 6", exact=True).first.click()
    for name, text in (("search", "gemm"), ("filter", "1, 3")):
        box = tab.locator(f"#timeline .tools .{name}")
        box.fill(text)
        settle(tab)
        assert name in tab.url
    tab.go_back()
    assert tab.locator("#timeline .tools .filter").input_value() == ""
    tab.locator("#timeline .tools .search").focus()
    tab.go_back()
    assert tab.locator("#timeline .tools .search").input_value() == ""


def test_x_and_a_drag_select_only_rows_that_are_there(open_page: OpenPage, file: Path) -> None:
    tab = open_page(file)
    canvas = drawn(tab)
    tab.locator("#timeline .tools .filter").fill("1, 3")
    settle(tab)
    canvas.press("x")
    assert "ranks=3,1&" in tab.evaluate("location.hash")
    tab.locator("#timeline .tools .filter").fill("nothing")
    settle(tab)
    for act in (lambda: canvas.press("x"), lambda: drag(tab, 30)):
        tab.evaluate("history.replaceState(null, '', '#timeline?filter=nothing&time=5-9')")
        tab.evaluate("dispatchEvent(new PopStateEvent('popstate'))")
        act()
        assert "time=" not in tab.evaluate("location.hash")


def drag(tab: Tab, y: float) -> None:
    box = tab.locator(CANVAS).bounding_box()
    assert box is not None
    tab.mouse.move(box["x"] + 300, box["y"] + y)
    tab.mouse.down()
    tab.mouse.move(box["x"] + 500, box["y"] + y)
    tab.mouse.up()


def test_details_stay_while_the_timeline_moves(open_page: OpenPage, file: Path) -> None:
    tab = open_page(file)
    show_first(tab)
    button = tab.locator("#timeline .panel").get_by_role("button", name="Zoom to event")
    before = tab.url
    button.press("Enter")
    settle(tab)
    assert tab.url != before
    assert button.evaluate("(button) => button === document.activeElement")


ZOOM_AND_CLICK = """(button) => {
  const canvas = document.querySelector("#timeline .rows canvas");
  const press = () => canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "w" }));
  press();
  document.dispatchEvent(new Event("lostflops-predicted"));
  press();
  button.click();
}"""


def test_a_zoom_right_before_a_click_elsewhere_stays(open_page: OpenPage, file: Path, strips: Strips) -> None:
    tab = open_page(file)
    drawn(tab)
    settle(tab)
    tab.locator("#ranks td").get_by_title("Select rank 6", exact=True).first.evaluate(ZOOM_AND_CLICK)
    shown = shown_time(tab)
    assert shown is not None
    assert shown[1] - shown[0] == pytest.approx((strips.stop - strips.start) / 1.5**2, rel=0.01)
    assert words(tab) == "Selected: rank 6"


COUNT_WRITES = """() => {
  const replace = history.replaceState;
  window.writes = 0;
  history.replaceState = function (...given) {
    window.writes++;
    return replace.apply(this, given);
  };
}"""


def test_an_address_of_no_section_is_written_once(open_page: OpenPage, file: Path) -> None:
    tab = open_page(f"{file.resolve().as_uri()}#foo%20bar?ranks=3")
    drawn(tab)
    settle(tab)
    tab.locator("#ranks td").get_by_title("Select rank 6", exact=True).first.click()
    settle(tab)
    assert tab.url.endswith("#foo%20bar?ranks=6")
    tab.evaluate(COUNT_WRITES)
    tab.wait_for_timeout(2200)
    assert tab.evaluate("window.writes") == 0
