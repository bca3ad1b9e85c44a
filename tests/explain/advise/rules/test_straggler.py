"""Ranks that are late in jobs whose truth is known, and jobs in which nobody is."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from lostflops import Run
from lostflops.account.late.judge import Lateness
from lostflops.explain.advise.case import Case
from lostflops.explain.advise.diagnose import diagnosis
from lostflops.explain.advise.rules import straggler, work_imbalance
from lostflops.ingest import ingest
from lostflops.testing import Losses, Straggler, SyntheticCluster, store, write_captured

RULES = (straggler.RULE, work_imbalance.RULE)
DELAY = 3_000_000
JOB = SyntheticCluster(ranks=4, steps=4)
KINDS = {
    "slow_kernels": "slow device",
    "late_data": "late data",
    "host_stall": "host stall",
    "allocation": "allocation",
}


def found(cluster, folder):
    with Run.open(store(cluster.generate(), folder / "run")) as run:
        return diagnosis(Case(run), rules=RULES)


def mean_step(cluster):
    """In ns, as the simulation has it."""
    truth = cluster.generate().truth
    return truth.wall / len(truth.ranks) / cluster.steps


QUICK = ("slow_kernels", "late_data")


@pytest.mark.parametrize(
    "cause", [cause if cause in QUICK else pytest.param(cause, marks=pytest.mark.slow) for cause in KINDS]
)
def test_a_late_rank_is_named_with_its_kind_and_its_price(cause, tmp_path):
    late = Straggler(2, cause, factor=1.6, delay=DELAY)
    sick = replace(JOB, stragglers=(late,))
    made = found(sick, tmp_path)
    first = made.findings[0]
    assert (first.cause, first.ranks) == ("straggler", (2,))
    assert f": {KINDS[cause]}, " in first.what
    assert first.saving.value == pytest.approx(1 - mean_step(JOB) / mean_step(sick), abs=0.05)
    assert first.lost_share == pytest.approx(first.saving.value, abs=0.1)
    assert {one.cause for one in made.findings} == {"straggler"}


def test_more_work_is_no_straggler(tmp_path):
    made = found(replace(JOB, stragglers=(Straggler(1, "more_work", factor=1.6),)), tmp_path)
    assert [(one.cause, one.ranks) for one in made.findings] == [("work_imbalance", (1,))]


def test_two_ranks_are_late_together(tmp_path):
    both = tuple(Straggler(rank, "host_stall", delay=DELAY) for rank in (1, 6))
    made = found(replace(JOB, ranks=8, stragglers=both), tmp_path)
    assert [(one.cause, one.ranks) for one in made.findings] == [("straggler", (1, 6))]


def test_nobody_is_late(tmp_path):
    assert found(JOB, tmp_path).findings == ()


def test_late_once_is_no_habit(tmp_path):
    once = Straggler(2, "host_stall", delay=DELAY, steps=(12,))
    assert found(replace(JOB, steps=6, stragglers=(once,)), tmp_path).findings == ()


@pytest.mark.parametrize(("cause", "told"), [("slow_kernels", ()), ("late_data", ("decode dataset.py:18",))])
def test_stacks_are_evidence_where_the_host_is_late_and_not_where_its_device_is(cause, told, tmp_path):
    job = replace(JOB, losses=Losses(sync=1), stragglers=(Straggler(2, cause, factor=1.6, delay=12_000_000),))
    write_captured(job, tmp_path / "capture")
    ingest([tmp_path / "capture"], tmp_path)
    with Run.open(tmp_path) as run:
        first = diagnosis(Case(run), rules=RULES).findings[0]
    assert (first.cause, first.ranks) == ("straggler", (2,))
    assert tuple(source for one in first.evidence for source in one.sources) == told


def test_a_rank_that_is_suspected_names_the_steps_that_would_settle_it() -> None:
    late = Lateness(rank=1, ns=9e6, share=0.1, error=4e6, late_steps=14, steps=20, more_steps=30)
    doubt = straggler._doubt([SimpleNamespace(found=SimpleNamespace(late=late))])
    assert doubt == "Rank 1 was late in 14 of 20 steps: 30 more steps would settle it."
