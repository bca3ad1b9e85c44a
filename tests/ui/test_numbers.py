"""Every view of a run's page shows the numbers that the command line gives with --json: one run, written as its owner
would, opened in a browser, and compared cell by cell."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest

from lostflops.cli.main import main
from lostflops.core.pictures import Spans, Strips
from lostflops.core.results import (
    Block,
    Findings,
    HeatMap,
    Lines,
    Page,
    Pairs,
    Plot,
    Portions,
    Result,
    Section,
    Stacks,
    Table,
    Timeline,
    Waterfall,
)
from lostflops.show.pages.page import MOST_KERNELS, QUESTIONS, page_of
from lostflops.show.report.html import write_page
from lostflops.store.run import Run
from tests.integration.statements import saving_of
from tests.ui.conftest import opening
from tests.ui.made_run import recorded_run
from tests.ui.saved import holds_rows, save
from tests.ui.shown_charts import heat_map_is, over_time_is, plot_is, stacks_are
from tests.ui.shown_figures import (
    cards_are,
    figures_are,
    findings_are,
    knobs_are,
    ledger_is,
    portions_are,
    section_is,
    table_is,
    waterfall_is,
)
from tests.ui.shown_timelines import events_are, spans_are, strips_are

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator
    from playwright.sync_api import Page as Tab

VERBS = {
    "report": ("report",),
    "diagnosis": ("diagnose",),
    "ranks": ("ranks",),
    "lateness": ("lateness",),
    "steps": ("steps",),
    "comm": ("comm",),
    "overlap": ("overlap",),
    "kernels": ("kernels", "--limit", str(MOST_KERNELS)),
    "pipeline": ("pipeline",),
    "memory": ("memory",),
    "flame": ("flame", "--all"),
}
"""The verb that answers as a view does."""
OWN = {"overview", "timeline", "knobs", "quality"}
"""Views that several verbs answer, or parts of one: each has a test of its own."""
COMPARED: dict[type[Block], Callable[[Locator, Any, Any], int]] = {
    Findings: findings_are,
    HeatMap: heat_map_is,
    Lines: ledger_is,
    Pairs: figures_are,
    Plot: plot_is,
    Portions: portions_are,
    Section: section_is,
    Spans: spans_are,
    Stacks: stacks_are,
    Strips: strips_are,
    Table: table_is,
    Timeline: over_time_is,
    Waterfall: waterfall_is,
}
"""By the kind of a block; knobs are turned, and have a test of their own."""
SOME_EVENTS = """select rank, event, name, kind, dur, start + coalesce(correction, 0) as start
    from events left join clocks using (rank) where kind <> 'span' and event % 31 = rank order by rank, event"""


@dataclass(frozen=True)
class Job:
    page: Page
    tab: Tab
    told: Callable[..., dict[str, Any]]

    def result(self, view: str) -> Result:
        return next(result for result in self.page.results if result.name == view)

    def shown(self, view: str, block: str) -> Locator:
        """A block that has been drawn."""
        self.tab.locator(f"article#{view}").scroll_into_view_if_needed()
        found = self.tab.locator(f"article#{view} [data-block='{block}']").first
        found.wait_for(state="attached")
        found.scroll_into_view_if_needed()
        return found

    def says(self, view: str, verdict: str, notes: list[str]) -> None:
        article = self.tab.locator(f"article#{view}")
        assert article.locator(".verdict").inner_text() == verdict
        everywhere = Counter(self.tab.locator(".notes li").all_text_contents())
        assert [note for note in notes if everywhere[note] != 1] == [], "each note once on the page"
        here = article.locator(".notes li").all_text_contents()
        earlier = {note for result in self.page.results[: self.place(view)] for note in result.notes}
        assert here == [note for note in notes if note not in earlier]

    def place(self, view: str) -> int:
        return [result.name for result in self.page.results].index(view)


@pytest.fixture(scope="module")
def job(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    folder = tmp_path_factory.mktemp("numbers")
    path = recorded_run(folder)
    with Run.open(path) as run:
        page = page_of(run)
    file = folder / "page.html"
    with file.open("w", encoding="utf-8") as stream:
        write_page(page, stream)

    @cache
    def told(*words: str) -> dict[str, Any]:
        printed = StringIO()
        with redirect_stdout(printed), suppress(SystemExit):
            main([words[0], str(path), *words[1:], "--json"])
        found: dict[str, Any] = json.loads(printed.getvalue())
        return found

    with opening(browser, []) as open_page:
        yield Job(page, open_page(file), told)


def test_every_view_is_compared(job: Job) -> None:
    """A new question needs a line above, or a test of its own below."""
    assert job.page.missing == ()
    assert len(job.page.results) == len(QUESTIONS)
    assert {result.name for result in job.page.results} == VERBS.keys() | OWN
    assert [view for view in OWN if f"test_{view}_" not in " ".join(globals())] == []


@pytest.mark.parametrize("view", VERBS)
@pytest.mark.few(4)
def test_a_view_shows_what_its_verb_says(job: Job, view: str) -> None:
    result, told = job.result(view), job.told(*VERBS[view])
    # The findings are in a view of their own, so the report of the page says their verdict as well.
    cause = f" {first_finding(told)}" if view == "report" else ""
    job.says(view, f"{told['verdict']}{cause}", told["notes"])
    compared = {block.name: shows(job.shown(view, block.name), block, told[block.name]) for block in result.blocks}
    assert all(compared.values()), f"a block shows nothing of this run: {compared}"
    assert compared, f"{view} shows nothing of this run"


def first_finding(told: dict[str, Any]) -> str:
    first = told["findings"][0]
    if first["level"] == "found":
        return f"{first['what']} Fixing it saves {saving_of(first)}."
    record = f" To confirm, record: lostflops run {first['record']} -- COMMAND." if first["record"] else ""
    suspicion = f"Suspected: {first['what']} Fixing it may save {saving_of(first)}. {first['doubt']}{record}"
    return f"No cause is certain yet. {suspicion}"


@pytest.mark.parametrize("view", ["report", "ranks", "comm", "kernels"])
def test_a_saved_table_holds_what_its_verb_says(job: Job, view: str) -> None:
    tables = [block for block in job.result(view).blocks if isinstance(block, Table) and block.rows]
    told = job.told(*VERBS[view])
    assert sum(holds_rows(save(job.shown(view, one.name), "CSV"), one, told[one.name]) for one in tables) > 10


def shows(where: Locator, block: Block, told: Any) -> int:
    """How many values of a block were found to be those of JSON; one of a kind that nobody compares is an error."""
    return COMPARED[type(block)](where, block, told)


def test_overview_shows_the_ledger_of_report_and_the_first_findings(job: Job) -> None:
    told = job.told("report")
    ledger, cards = job.result("overview").blocks
    job.says("overview", job.result("overview").verdict, [told["verdict"]])
    assert shows(job.shown("overview", ledger.name), ledger, told["ledger"])
    assert cards_are(job.shown("overview", cards.name), cards, job.told("diagnose")["findings"])


def test_quality_shows_what_info_says_and_stays_in_sight(job: Job) -> None:
    told = job.told("info")
    held, judged = told["contents"], told["quality"]
    job.says("quality", f"{held['verdict']} {judged['verdict']}", held["notes"] + judged["notes"])
    assert job.tab.locator(".standing").inner_text() == f"{held['verdict']} {judged['verdict']}"
    for block in job.result("quality").blocks:
        part = judged if block.name in judged else held
        shows(job.shown("quality", block.name), block, part[block.name])


def test_knobs_show_what_whatif_predicts(job: Job) -> None:
    knobs, refused = (block.to_json() for block in job.result("knobs").blocks)
    told = job.told("whatif", "--all")
    asked = [(tuple(one["change"].split("=")), one) for one in (*told["changes"], *told["hardware"])]
    turned = [(one, found) for one, found in asked if one[1] in {at["value"] for at in knobs["knobs"][one[0]]}]
    assert len(turned) > 10
    measured = told["baseline"]["measured_ns"]
    assert knobs_are(job.shown("knobs", "knobs"), [one for one, _ in turned], measured, [one for _, one in turned])
    reasons = {one["change"]: one["reason"] for one in told["not_applicable"]}
    assert all(one["reason"] == reasons.get(one["change"], one["reason"]) for one in refused)
    table = next(block for block in job.result("knobs").blocks if isinstance(block, Table))
    assert table_is(job.shown("knobs", "not_applicable"), table, refused)


def test_timeline_shows_stretches_of_rows_and_events_that_sql_gives(job: Job) -> None:
    (strips,) = job.result("timeline").blocks
    where, told = job.shown("timeline", "rows"), strips.to_json()
    assert shows(where, strips, told) > 100
    assert events_are(where, told, job.told("sql", SOME_EVENTS)["rows"]) > 100


def test_timeline_rows_are_the_ledger(job: Job) -> None:
    """What stretches sum to is what the report says, as far as bins can tell."""
    (strips,) = job.result("timeline").blocks
    stretches = [one for row in strips.to_json()["rows"].values() for one in row if one[0]]
    known = sum(bins for _, bins in stretches)
    for one in job.told("report")["ledger"]["lines"]:
        bins = sum(bins for kind, bins in stretches if kind == one["line"])
        assert bins / known == pytest.approx(one["share"], abs=0.03), one["line"]
