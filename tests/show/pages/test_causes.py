"""Causes on a page: those of the diagnosis, unless that would take minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from lostflops.account.ledger import few_steps
from lostflops.explain.advise import summary
from lostflops.explain.advise.diagnose import diagnose
from lostflops.show.pages.page import OPEN, QUESTIONS, causes, page_of
from lostflops.store.run import Run
from lostflops.testing import Straggler, SyntheticCluster, store


def test_a_page_tells_the_causes_that_a_diagnosis_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late = Straggler(rank=2, cause="slow_kernels", factor=1.5)
    path = store(SyntheticCluster(ranks=4, steps=4, stragglers=(late,)).generate(), tmp_path / "run")
    with Run.open(path) as run:
        assert QUESTIONS["diagnosis"] is causes
        (shown,) = page_of(run, {"diagnosis": causes}).results
        assert shown.to_json() == diagnose(run, most=OPEN).to_json()
        assert shown.to_json()["findings"][0]["cause"] == "straggler"
        assert shown.next_command == "lostflops explain run 1"
        monkeypatch.setattr(few_steps, "AFFORDED", 10)
        (large,) = page_of(run, {"diagnosis": causes}).results
        assert large.verdict == summary.LARGE
        assert large.blocks == ()
        assert large.next_command == "lostflops diagnose run"


def test_where_nothing_stands_out_no_finding_is_offered_to_explain(tmp_path: Path) -> None:
    with Run.open(store(SyntheticCluster(ranks=2, steps=3).generate(), tmp_path / "run")) as run:
        found = causes(run)
        assert found.to_json()["findings"] == []
        assert found.next_command == "lostflops whatif run --all"
