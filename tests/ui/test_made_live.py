"""A live page whose server answers late, refuses, or has more than a page asks for at once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lostflops.account.ledger.lines import LINES
from lostflops.core.estimate import Estimate, Kind, Strength
from lostflops.core.pictures import Knob, Knobs, Setting, Strips
from lostflops.core.results import Finding, Findings, Pair, Pairs, Prediction, Result
from tests.ui.made_server import ADDRESS, MadeServer, kernels
from tests.ui.seen import drawn, settle

if TYPE_CHECKING:
    from playwright.sync_api import Page as Tab

    from tests.ui.conftest import OpenPage

SPAN, RANKS = 8_000_000, 20
NOW = Setting("as recorded", 100, 90, 110, (("compute", 100),))
LESS = Setting("removed", 80, 70, 90, (("compute", 80),), gain_interval=(0.1, 0.3))


def overview() -> Result:
    saving = Estimate(0.2, 0.1, 0.3, Kind.REPLAYED, "replay")
    fix = Prediction("p-1", "straggler=removed", 100, 80, 70, 90, 0.0)
    late = Finding(
        id="late", level="found", cause="late", what="It is late.", lost_ns=9, lost_share=0.1, rank_hours=1.0, usd=None,
        ranks=(1,), evidence=(), strength=Strength.STRONG, probability=None, certain_if="", fix="Less of it.",
        lines={"compute": 9}, saving=saving, prediction=fix,
    )  # fmt: skip
    return Result("overview", "Overview", "It is late.", (Findings("cards", "", (late,), is_brief=True),))


def timeline(ranks: int = RANKS) -> Result:
    rows = tuple((f"rank {rank}", bytes([1] * 8)) for rank in range(ranks))
    strips = Strips("rows", "Rows", 10**18, 10**18 + SPAN, 8, LINES, rows)
    return Result("timeline", "Timeline", "It is drawn.", (strips,))


def long(name: str) -> Result:
    return Result(name, name.title(), "Long.", (Pairs("f", "", tuple(Pair(f"f{n}", n, "count") for n in range(300))),))


def knobs() -> Result:
    block = Knobs("knobs", "Turn", 100, NOW.lines, (Knob("straggler", "late ranks", (NOW, LESS), 0),))
    return Result("knobs", "What if", "Turn.", (block,))


@pytest.fixture
def server() -> MadeServer:
    results = (overview(), timeline(), long("steps"), knobs(), long("kernels"))
    return MadeServer(results, ("overview", "timeline", "steps", "kernels", "knobs"))


def shown(open_page: OpenPage, server: MadeServer, query: str = "", **look: int) -> Tab:
    tab = open_page(f"{ADDRESS}/{query}", before=server.listen, **look)
    if not server.withheld:
        tab.locator("html[data-complete=yes]").wait_for(state="attached")
    return tab


def distance(tab: Tab, name: str) -> float:
    """Return how far a section is below the top of the window."""
    return float(tab.evaluate("(name) => document.getElementById(name).getBoundingClientRect().top", name))


def test_try_it_goes_to_a_what_if_that_is_still_to_come(open_page: OpenPage, server: MadeServer) -> None:
    server.withheld.add("knobs")
    tab = shown(open_page, server)
    tab.locator("#overview .card").get_by_role("button", name="Try it").click()
    assert tab.evaluate("location.hash") == "#knobs?changes=straggler:removed"
    assert 0 < distance(tab, "knobs") < 200
    server.release("knobs")
    tab.locator("#knobs .answer h4", has_text="With straggler=removed").wait_for()
    assert 0 < distance(tab, "knobs") < 200, "it stays in sight"


@pytest.mark.parametrize("moves", [False, True])
def test_a_queued_section_is_landed_on_at_once_and_only_once(
    open_page: OpenPage, server: MadeServer, moves: bool
) -> None:
    server.withheld |= {"steps", "kernels"}
    tab = shown(open_page, server)
    tab.get_by_role("navigation").get_by_role("link", name="Kernels").click()
    assert tab.evaluate("location.hash") == "#kernels"
    assert tab.evaluate("document.activeElement.textContent") == "Kernels"
    assert 0 < distance(tab, "kernels") < 900
    if moves:
        tab.mouse.wheel(0, -10_000)
        tab.wait_for_function("() => scrollY === 0")
    for name in ("steps", "kernels"):
        server.release(name)
        tab.locator(f"#{name} .verdict").wait_for()
    tab.locator("html[data-complete=yes]").wait_for(state="attached")
    settle(tab)
    if moves:
        assert tab.evaluate("scrollY") == 0
    else:
        assert 0 < distance(tab, "kernels") < 200


def test_a_search_counts_events_that_come_later(open_page: OpenPage, server: MadeServer) -> None:
    tab = shown(open_page, server)
    drawn(tab)
    tab.locator("#timeline .search").fill("gemm")
    found = tab.locator("#timeline .searching output")
    found.get_by_text("0 found in what is loaded").wait_for()
    drawn(tab).focus()
    tab.keyboard.press("Enter")
    found.get_by_text("1 found in what is loaded").wait_for()
    tab.locator("#timeline .search").press("Enter")
    assert found.inner_text() == "1 of 1 in what is loaded"
    drawn(tab).focus()
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("Enter")
    found.get_by_text("1 of 2 in what is loaded").wait_for()


def test_kinds_of_events_that_come_later_are_explained(open_page: OpenPage, server: MadeServer) -> None:
    tab = shown(open_page, server)
    drawn(tab).focus()
    legend = tab.get_by_role("group", name="Events")
    assert legend.count() == 0
    tab.keyboard.press("Enter")
    legend.get_by_role("button", name="kernel").wait_for()


def test_a_live_page_does_not_advise_to_serve(open_page: OpenPage, server: MadeServer) -> None:
    server.events = lambda ranks, start, stop: replace(kernels(ranks, start, stop - start), left_out=3)
    tab = shown(open_page, server, "#timeline?open=1&event=1.99")
    panel = tab.locator("#timeline .panel")
    panel.get_by_text("Zoom in to load shorter events.").wait_for()
    assert "lostflops serve" not in panel.inner_text()


def test_a_refused_question_says_why_and_a_good_answer_takes_it_back(
    open_page: OpenPage, server: MadeServer, complaints: list[str]
) -> None:
    server.refusal = "the run is gone"
    tab = shown(open_page, server, "#timeline?open=1")
    tab.locator("#timeline").get_by_text("Events could not be loaded: the run is gone").wait_for()
    server.refusal = ""
    drawn(tab).focus()
    tab.keyboard.press("w")
    tab.get_by_role("group", name="Events").wait_for()
    assert tab.get_by_text("could not be loaded").count() == 0
    complaints[:] = [one for one in complaints if "Failed to load resource" not in one]


def test_of_many_open_ranks_those_in_sight_are_asked_for(open_page: OpenPage, server: MadeServer) -> None:
    opened = ",".join(map(str, range(RANKS)))
    tab = shown(open_page, server, f"#timeline?open={opened}")
    tab.get_by_text("Events of 16 of 20 open ranks are loaded: scroll to load those of others.").wait_for()
    assert server.asked[-1] == list(range(16))
    tab.locator("#timeline .timeline .rows").evaluate("(box) => box.scrollTo(0, 1e6)")
    for _ in range(50):
        if server.asked[-1] == list(range(4, 20)):
            break
        tab.wait_for_timeout(100)
    assert server.asked[-1] == list(range(4, 20))


# The first question for events fails while the answer to the second is under way.
FAIL_LATE = """() => {
  const ask = window.fetch;
  let fail = null;
  window.asked = 0;
  window.fetch = async (path, ...rest) => {
    if (!path.includes("/api/events")) return ask(path, ...rest);
    if (++window.asked === 1) return new Promise((_, failed) => (fail = () => failed(new TypeError("failed"))));
    fail();
    await new Promise((done) => setTimeout(done, 50));
    return ask(path, ...rest);
  };
}"""


def test_a_question_that_fails_late_does_not_drop_a_later_answer(open_page: OpenPage, server: MadeServer) -> None:
    tab = shown(open_page, server)
    drawn(tab).focus()
    tab.evaluate(FAIL_LATE)
    tab.keyboard.press("Enter")
    tab.wait_for_function("() => window.asked === 1")
    # In whole ns, as the timeline itself would write it a moment later.
    tab.evaluate("history.replaceState(null, '', '#timeline?open=0&zoom=3000000-4000000')")
    tab.evaluate("dispatchEvent(new PopStateEvent('popstate'))")
    tab.get_by_role("group", name="Events").wait_for()
    assert tab.evaluate("window.asked") == 2, "nothing is asked again"
