"""The overview says no more than is known, in at most fifteen words."""

from __future__ import annotations

from pathlib import Path

import pytest

from lostflops.account.ledger import few_steps
from lostflops.core.results import Findings, Lines
from lostflops.explain.advise.summary import FIRST, LARGE, MOST_WORDS
from lostflops.explain.analyze.report import report
from lostflops.show.pages.overview import overview, overview_without_causes, report_in_full
from lostflops.show.pages.page import page_of
from lostflops.store.run import Run
from lostflops.testing import Straggler, SyntheticCluster, store
from made_timed_runs import recorded


@pytest.fixture(scope="module")
def late_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    late = Straggler(rank=2, cause="slow_kernels", factor=1.5)
    cluster = SyntheticCluster(ranks=4, steps=4, stragglers=(late,))
    return store(cluster.generate(), tmp_path_factory.mktemp("late") / "run")


def test_it_has_a_headline_the_ledger_and_the_first_findings(late_run: Path) -> None:
    with Run.open(late_run) as run:
        found, plain = overview(run), report(run)
        early = overview_without_causes(run)
    assert found.verdict.startswith("Rank 2 ")
    assert len(found.verdict.split()) <= MOST_WORDS
    ledger, cards = found.blocks
    assert ledger == next(block for block in plain.blocks if isinstance(block, Lines))
    assert isinstance(cards, Findings)
    assert len(cards.places) == min(FIRST, len(cards.items))
    assert found.notes == early.notes == (plain.verdict,)
    assert early.blocks == (ledger,)
    assert (early.name, early.title) == (found.name, found.title)


def test_the_report_of_a_page_has_all_that_the_overview_does_not_show(late_run: Path) -> None:
    with Run.open(late_run) as run:
        rest, plain = report_in_full(run), report(run)
    assert rest.blocks == tuple(block for block in plain.blocks if not isinstance(block, Lines))
    assert rest.notes == plain.notes


def test_causes_that_were_not_looked_for_are_not_said_to_be_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Run.open(store(SyntheticCluster(ranks=2, steps=3).generate(), tmp_path / "run")) as run:
        monkeypatch.setattr(few_steps, "AFFORDED", 10)
        large = overview(run)
    assert large.verdict.startswith("Compute takes ")
    assert LARGE in large.notes


def test_a_run_whose_steps_were_only_timed_has_a_page(tmp_path: Path) -> None:
    with Run.open(recorded(tmp_path / "timed", [100.0] * 11, world=2)) as run:
        page, plain = page_of(run), report(run)
        early = overview_without_causes(run)
    first = page.results[0]
    assert (first.name, first.blocks, first.notes) == ("overview", (), (plain.verdict,))
    assert first.verdict == "No cause of lost time was found; no steps were recorded in detail."
    assert early.verdict == "No steps were recorded in detail."
