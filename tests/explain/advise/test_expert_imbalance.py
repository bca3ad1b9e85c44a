"""A recorded mixture of experts with and without a hot expert: its rank, layer and expert are named, or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.collect.jobs import PYTHON, finish, run_words

from lostflops import Run
from lostflops.explain.advise.case import Case
from lostflops.explain.advise.diagnose import diagnosis
from lostflops.explain.analyze.comm import comm

pytest.importorskip("torch")
pytestmark = pytest.mark.slow
JOB = Path(__file__).with_name("expert_job.py")


def record(folder: Path, *flags: str) -> Path:
    done = finish([*run_words(folder), PYTHON, "-m", "torch.distributed.run", "--nproc-per-node=3", str(JOB), *flags])
    assert done.code == 0, done.stderr.decode()
    return folder


def findings(folder: Path, *flags: str):
    with Run.open(record(folder, *flags)) as run:
        return diagnosis(Case(run)).findings


def test_a_hot_expert_is_named_with_its_rank_and_layer(tmp_path: Path) -> None:
    hot = next(one for one in findings(tmp_path / "run", "--hot", "1") if one.cause == "expert_imbalance")
    assert hot.ranks == (1,)
    assert "MoE layer 2 of 3 (module 1)" in hot.what
    assert any("only expert is 1" in one.what for one in hot.evidence)


def test_a_router_that_is_even_but_for_chance_is_no_finding(tmp_path: Path) -> None:
    assert "expert_imbalance" not in {one.cause for one in findings(tmp_path / "run")}


def test_padded_places_are_not_called_balanced(tmp_path: Path) -> None:
    """Layer 2 sends 60% of its tokens to one expert, but each takes and pads 300 of each rank."""
    with Run.open(record(tmp_path / "run", "--hot", "1", "--capacity", "300", "--pad")) as run:
        checked = {one.cause: one for one in diagnosis(Case(run)).checked}
        notes = comm(run).notes
    assert "balance is unknown" in checked["expert_imbalance"].why
    assert any("fixed capacity" in note for note in notes)


def test_dropped_tokens_are_named(tmp_path: Path) -> None:
    """Layer 2 would send about 750 tokens of each rank to one expert, which takes 600 of each."""
    with Run.open(record(tmp_path / "run", "--hot", "1", "--capacity", "600")) as run:
        notes = [note for note in comm(run).notes if "dropped" in note]
        hot = next(one for one in diagnosis(Case(run)).findings if one.cause == "expert_imbalance")
    assert len(notes) == 1
    assert "MoE layer 2 of 3 on rank 1" in notes[0]
    assert notes[0] in [one.what for one in hot.evidence]
    assert "drop more tokens" in hot.fix
