"""Every view of a run's page shows the numbers that the command line gives with --json: one run, written as its owner
would, opened in a browser, and compared cell by cell."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lostflops.cli.main import main
from lostflops.pages.page import page_of
from lostflops.report.html import write_page
from lostflops.report.values import format_value, format_values
from lostflops.results import Field, Findings, Lines, Page, Pairs, Result, Section, Table, Waterfall
from lostflops.store.run import Run
from lostflops.testing import Losses, Straggler, SyntheticCluster, store
from lostflops.units import format_ns, format_share

if TYPE_CHECKING:
    from playwright.sync_api import Locator
    from playwright.sync_api import Page as Tab

FIRST = 20
"""Rows of a table that are shown before it is unfolded."""

VERBS = {
    "report": "report",
    "diagnosis": "diagnose",
    "ranks": "ranks",
    "steps": "steps",
    "comm": "comm",
    "kernels": "kernels",
    "pipeline": "pipeline",
    "quality": "info",
}


@dataclass(frozen=True)
class Job:
    run: Path
    page: Page
    file: Path
    told: Callable[..., dict[str, Any]]

    def result(self, name: str) -> Result:
        return next(result for result in self.page.results if result.name == name)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A pipeline of two stages, each on two ranks of which one is slow; every second step waits for its data."""
    folder = tmp_path_factory.mktemp("numbers")
    cluster = SyntheticCluster(
        ranks=4,
        steps=4,
        pipeline_parallel=2,
        microbatches=4,
        losses=Losses(data=5_000_000, copy_bytes=4_000_000, sync=1, steps=(11, 13)),
        stragglers=(Straggler(2, "slow_kernels", factor=1.5),),
    )
    path = store(cluster.generate(), folder)
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

    return Job(path, page, file, told)


def shown(tab: Tab, view: str, block: str) -> Locator:
    """A block that has been drawn."""
    tab.locator(f"article#{view}").scroll_into_view_if_needed()
    found = tab.locator(f"article#{view} [data-block='{block}']").first
    found.wait_for(state="attached")
    return found


def of_json(told: dict[str, Any], block: str) -> Any:
    """Of the verb's answer; `info` gives two in one."""
    if block in told:
        return told[block]
    return next(part[block] for part in told.values() if isinstance(part, dict) and block in part)


@pytest.mark.parametrize("view", VERBS)
def test_verdicts_tables_and_figures_are_those_of_json(open_page, job: Job, view: str) -> None:
    result, told = job.result(view), job.told(VERBS[view])
    tab, compared = open_page(job.file), 0
    if view != "quality":
        assert tab.locator(f"article#{view} .verdict").inner_text() == told["verdict"]
    for block in result.blocks:
        where = shown(tab, view, block.name)
        match block:
            case Table():
                compared += table_is(where, block, of_json(told, block.name))
            case Pairs():
                compared += figures_are(where, block, of_json(told, block.name))
            case Section():
                compared += figures_are(where, block, of_json(told, block.name))
                compared += table_is(where, block.table, of_json(told, block.name)[block.table.name])
            case Waterfall():
                compared += waterfall_is(where, of_json(told, block.name))
            case Lines():
                compared += ledger_is(where, block, of_json(told, block.name))
            case Findings():
                compared += findings_are(where, of_json(told, block.name))
    assert compared >= 3, f"{view} shows next to nothing of this run"


def table_is(where: Locator, table: Table, rows: list[dict[str, Any]]) -> int:
    fields = [field for field in table.fields if field.shown]
    if not rows:
        assert "No rows" in where.inner_text()
        return 0
    cells = where.locator("tbody tr").evaluate_all(
        "rows => rows.map((row) => [...row.cells].map((one) => one.title || one.textContent))"
    )
    assert len(cells) == min(len(rows), FIRST)
    for row, texts in zip(rows, cells, strict=False):
        for field, text in zip(fields, texts, strict=True):
            wanted = format_value(value_of(row, field), field.unit)
            is_whole = wanted.endswith("...") and wanted.removesuffix("...") in text
            assert text == wanted or is_whole, (table.name, field.name)
    return len(cells) * len(fields)


def value_of(row: dict[str, Any], field: Field) -> Any:
    return row[field.within][field.name] if field.within else row[field.name]


def figures_are(where: Locator, block: Pairs | Section, told: dict[str, Any]) -> int:
    pairs = [pair for pair in block.items if pair.shown]
    for pair in pairs:
        value = told[pair.name]
        wanted = format_values(value, pair.unit) if isinstance(value, list) else format_value(value, pair.unit)
        assert where.locator(f"dd[data-name='{pair.name}']").inner_text() == wanted, pair.name
    return len(pairs)


def waterfall_is(where: Locator, told: dict[str, Any]) -> int:
    bars = told["waterfall"]
    rows = where.locator(".fall[data-bar]")
    assert rows.locator(".name").all_inner_texts() == [bar["line"] for bar in bars]
    assert rows.locator(".points").all_inner_texts() == [format_share(bar["points"] / 100) for bar in bars]
    assert format_share(told["value"]) in where.locator(".reached").inner_text()
    return len(bars)


def ledger_is(where: Locator, block: Lines, told: dict[str, Any]) -> int:
    lines = [line for line in told["lines"] if line["ns"]]
    rows = where.locator(".unfolding > [data-row]")
    names = [row.locator(".name").first.inner_text() for row in rows.all()]
    assert names == [line["line"] for line in lines]
    for row, line in zip(rows.all(), lines, strict=True):
        assert row.locator(".figure").first.inner_text() == format_ns(round(line["ns"] / block.per))
        assert row.locator(".share").first.inner_text() == format_share(line["share"])
    return len(lines)


def findings_are(where: Locator, told: list[dict[str, Any]]) -> int:
    cards = where.locator(".finding")
    assert [card.get_attribute("data-cause") for card in cards.all()] == [one["cause"] for one in told]
    for card, one in zip(cards.all(), told, strict=True):
        words = card.text_content()
        assert one["what"] in words
        assert format_share(one["lost_share"]) in words
        if one["prediction"]:
            assert format_share(one["prediction"]["gain"]) in words
    return 3 * len(told)


def test_a_turned_knob_shows_what_whatif_predicts(open_page, job: Job) -> None:
    (knobs,) = (block.to_json() for block in job.result("knobs").blocks if block.name == "knobs")
    tab = open_page(job.file)
    where = shown(tab, "knobs", "knobs")
    change, settings = next(
        (change, settings) for change, settings in knobs["knobs"].items() if change == "network.bandwidth"
    )
    slider = where.locator(f"[data-knob='{change}'] input")
    slider.focus()
    slider.press("End")
    told = job.told("whatif", "--change", f"{change}={settings[-1]['value']}")
    texts = where.locator(".figure strong").all_inner_texts()
    assert texts[:2] == [format_ns(told["baseline"]["measured_ns"]), format_ns(told["predicted_ns"])]


def test_rows_of_the_timeline_are_the_ranks_and_its_bins_the_ledger(job: Job) -> None:
    """What the strips say in all is what the ledger says, as far as bins can tell."""
    (strips,) = (block for block in job.result("timeline").blocks if block.name == "rows")
    lines = {one["line"]: one["share"] for one in job.told("report")["ledger"]["lines"]}
    held = b"".join(codes for _, codes in strips.rows)
    known = len(held) - held.count(0)
    for place, kind in enumerate(strips.kinds, 1):
        assert held.count(place) / known == pytest.approx(lines.get(kind, 0.0), abs=0.03), kind
