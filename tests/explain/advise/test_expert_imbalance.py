"""A recorded mixture of experts with and without a hot expert: its rank, layer and expert are named, or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.collect.jobs import PYTHON, finish, run_words

from lostflops import Run
from lostflops.explain.advise.case import Case
from lostflops.explain.advise.diagnose import diagnosis

pytest.importorskip("torch")
pytestmark = pytest.mark.slow
JOB = Path(__file__).with_name("expert_job.py")


def findings(folder: Path, *flags: str):
    done = finish([*run_words(folder), PYTHON, "-m", "torch.distributed.run", "--nproc-per-node=3", str(JOB), *flags])
    assert done.code == 0, done.stderr.decode()
    with Run.open(folder) as run:
        return diagnosis(Case(run)).findings


def test_a_hot_expert_is_named_with_its_rank_and_layer(tmp_path: Path) -> None:
    hot = next(one for one in findings(tmp_path / "run", "--hot", "1") if one.cause == "expert_imbalance")
    assert hot.ranks == (1,)
    assert "MoE layer 2 of 3 (module 1)" in hot.what
    assert any("only expert is 1" in one.what for one in hot.evidence)


def test_a_router_that_is_even_but_for_chance_is_no_finding(tmp_path: Path) -> None:
    assert "expert_imbalance" not in {one.cause for one in findings(tmp_path / "run")}
