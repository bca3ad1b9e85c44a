"""Sums of a selected area on the page, against SQL over the tables of the run, to the ns."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import lostflops
from lostflops.account.align.one_clock import OneClock
from lostflops.account.derive.timeline import TimelineSpan
from lostflops.explain.analyze.selection import selection
from lostflops.store.run import Run
from tests.ui.made_run import recorded_run

if TYPE_CHECKING:
    from playwright.sync_api import Page as Tab

    from tests.ui.conftest import OpenPage

SENTENCES = 20
"""Of these, sentences are compared too: Python and the page have one implementation each."""
SELECT = """async (address) => {
  const before = document.querySelector(".summed");
  history.pushState(null, "", address);
  dispatchEvent(new PopStateEvent("popstate"));
  for (let tries = 0; tries < 200; tries++) {
    await new Promise((done) => setTimeout(done, 15));
    const now = document.querySelector(".summed");
    if (now && now !== before) {
      const rows = [...now.querySelectorAll(".unfolding > [data-row]")];
      const lines = Object.fromEntries(rows.map((row) => [row.dataset.row, Number(row.dataset.exact)]));
      return [lines, now.querySelector(".sentence").textContent];
    }
  }
  return null;
}"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("totals")
    recorded_run(folder)
    with lostflops.open(folder / "run") as run:
        run.page(folder / "page.html")
    return folder


def by_sql(run: Run, clock: OneClock, ranks: list[int], start: int, stop: int) -> dict[str, int]:
    """Return the time of each line between two times of the common clock, one rank after the other."""
    found: dict[str, int] = {}
    for rank in ranks:
        first, last = clock.own(rank, np.array([start, stop])).tolist()
        rows = run.sql(
            f"select line, sum(least(stop, {last}) - greatest(start, {first}))::bigint from stretches "
            f"where rank = {rank} and start < {last} and stop > {first} group by line"
        ).fetchall()
        for line, ns in rows:
            found[line] = found.get(line, 0) + ns
    return found


def read_sums(tab: Tab, ranks: list[int], start: int, stop: int) -> tuple[dict[str, int], str]:
    """Select this on the page; return the time of each line, and the sentence over them."""
    address = f"#timeline?ranks={','.join(map(str, ranks))}&time={start}-{stop}"
    found: tuple[dict[str, int], str] | None = tab.evaluate(SELECT, address)
    assert found is not None, f"{address} was not summed"
    return found


@pytest.mark.parametrize("selections", [50, pytest.param(200, marks=pytest.mark.slow)])
def test_sums_of_random_selections_are_those_of_sql(made: Path, open_page: OpenPage, selections: int) -> None:
    tab = open_page(made / "page.html")
    tab.locator("#timeline canvas").first.wait_for()
    chance = random.Random(26)
    with Run.open(made / "run") as run:
        clock = OneClock.of(run)
        span = TimelineSpan.of(run, clock)
        assert span is not None
        for number in range(selections):
            start, stop = sorted(chance.sample(range(1, span.stop - span.start - 1), 2))
            ranks = sorted(chance.sample(run.ranks, chance.randint(1, len(run.ranks) - 1)))
            expected = by_sql(run, clock, ranks, span.start + start, span.start + stop)
            lines, sentence = read_sums(tab, ranks, start, stop)
            assert lines == expected, (ranks, start, stop)
            if number < SENTENCES:
                assert sentence == selection(run, ranks=ranks, start=start, stop=stop).verdict


def test_sums_of_steps_are_those_of_the_ledger(made: Path, open_page: OpenPage) -> None:
    tab = open_page(made / "page.html")
    tab.locator("#timeline canvas").first.wait_for()
    with Run.open(made / "run") as run:
        steps = [step for (step,) in run.rows("select distinct step from spans order by step")]
        assert len(steps) > 2
        for first, last in [(step, step) for step in steps] + [(steps[0], steps[-1])]:
            expected = dict(
                run.rows(
                    "select line, sum(ns)::bigint from ledger where split = 'step' and ns > 0 "
                    f"and step between {first} and {last} group by line"
                )
            )
            lines, sentence = tab.evaluate(SELECT, f"#timeline?steps={first}-{last}")
            assert lines == expected
            assert sentence == selection(run, steps=(first, last)).verdict
            assert sentence.startswith(f"Step {first} on" if first == last else f"Steps {first} to {last} on")
