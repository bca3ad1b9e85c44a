"""`comm --overlap` and `ranks --by-step`, also by their old names, say what their analyses do."""

import json
from pathlib import Path

import pytest
from tests.cli.mini_traces import BUSY, CALM, make_run

from lostflops.explain.analyze.lateness import lateness
from lostflops.explain.analyze.overlap import overlap
from lostflops.store.run import Run


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("golden"), BUSY, CALM)


@pytest.mark.parametrize(
    ("verb", "option", "analysis"),
    [
        ("comm", "--overlap", overlap),
        ("ranks", "--by-step", lateness),
        ("overlap", None, overlap),
        ("lateness", None, lateness),
    ],
)
def test_json_is_that_of_the_analysis(lostflops, golden: Path, verb: str, option: str | None, analysis) -> None:
    outcome = lostflops(verb, golden, *([option] if option else []), "--json")
    assert (outcome.code, outcome.err) == (0, "")
    with Run.open(golden) as run:
        assert json.loads(outcome.out) == analysis(run).to_json()


def test_overlap_of_a_rank_by_hand(lostflops, golden: Path) -> None:
    """25 us of all-reduce, 5 us of it under compute, as `lostflops comm` says too."""
    found = {
        row["activity"]: row
        for row in json.loads(lostflops("overlap", golden, "--rank", "0", "--json").out)["activities"]
    }
    told = json.loads(lostflops("comm", golden, "--rank", "0", "--json").out)["groups"][0]
    assert found["all_reduce"]["ns"] == told["comm_ns"] == 25_000
    assert found["all_reduce"]["under_compute_ns"] == told["hidden_ns"] == 5_000


def test_text(lostflops, golden: Path) -> None:
    shown = lostflops("overlap", golden).out
    assert "columns: alone, compute, all_reduce" in shown
    assert "Next: lostflops comm" in shown
    assert "columns: forward, backward, optimizer, data, other" in lostflops("lateness", golden).out
