"""A live page whose server answers late, refuses, or has more than a page asks for at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lostflops.account.ledger.lines import LINES
from lostflops.core.pictures import Knob, Knobs, Setting, Strips
from lostflops.core.results import Finding, Findings, Pair, Pairs, Prediction, Result
from tests.ui.made_server import ADDRESS, MadeServer
from tests.ui.seen import settle

if TYPE_CHECKING:
    from playwright.sync_api import Page as Tab

    from tests.ui.conftest import OpenPage

SPAN, RANKS = 8_000_000, 20
NOW = Setting("as recorded", 100, 90, 110, (("compute", 100),))
LESS = Setting("removed", 80, 70, 90, (("compute", 80),), gain_interval=(0.1, 0.3))


def overview() -> Result:
    fix = Prediction(0.2, 0.1, 0.3, "replay", change="straggler=removed", predicted_ns=80, measured_ns=100)
    late = Finding(
        id="late", level="found", cause="late", what="It is late.", lost_ns=9, lost_share=0.1, rank_hours=1.0, usd=None,
        ranks=(1,), evidence=(), confidence=0.9, certain_if="", fix="Less of it.", lines={"compute": 9}, prediction=fix,
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
        tab.wait_for_function("scrollY === 0")
    for name in ("steps", "kernels"):
        server.release(name)
        tab.locator(f"#{name} .verdict").wait_for()
    tab.locator("html[data-complete=yes]").wait_for(state="attached")
    settle(tab)
    if moves:
        assert tab.evaluate("scrollY") == 0
    else:
        assert 0 < distance(tab, "kernels") < 200
