"""A large run is diagnosed by a few of its steps, but who is late is judged by all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lostflops.account.align.mesh import recognise
from lostflops.account.derive.derive import with_accounts
from lostflops.account.late.ranks import judge_ranks
from lostflops.account.ledger.few_steps import few_steps
from lostflops.account.ledger.scope import scope
from lostflops.explain.advise import case as cases
from lostflops.explain.advise.case import Case
from lostflops.store.run import Run
from lostflops.testing import Straggler, SyntheticCluster, store

LATE, STEPS = 2, 8
CLUSTER = SyntheticCluster(ranks=4, steps=STEPS, stragglers=(Straggler(LATE, "slow_kernels", factor=1.6),))


def test_who_is_late_is_judged_by_all_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = store(CLUSTER.generate(), tmp_path / "run")
    with with_accounts(Run.open(folder)) as run:
        monkeypatch.setattr(cases, "few_steps", lambda whole: few_steps(whole, most=2_000))
        case = Case(run)
        assert 0 < len(case.run.steps) < STEPS
        (late,) = case.judgement.late
        assert (late.rank, late.late.steps) == (LATE, STEPS)
        assert case.judgement.late == judge_ranks(run, scope(run, None), recognise(run)).late
