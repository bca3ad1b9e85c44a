"""Recorded jobs whose cause is published, planted, or plain from the data: it is the first finding."""

from __future__ import annotations

import json

import pytest
from tests.integration.real_runs import real_runs

from lostflops import Run
from lostflops.explain.advise.case import Case
from lostflops.explain.advise.diagnose import diagnosis
from shared_data import TRACES, needs_traces

PUBLISHED = "ByteDance-Seed__StragglerAnalysis"
TORCHREC = "meta-pytorch__torchrec"
KNOWN = [
    pytest.param(f"{TORCHREC}/sst_sleep*/*.gz", "straggler", (2,), "host stall", marks=pytest.mark.slow),
    (f"{TORCHREC}/sst_long_a2a_optimizer/*.gz", "straggler", (2,), "host stall"),
    pytest.param(f"{TORCHREC}/sst_long_a2a_optimizer_2/*.gz", "straggler", (2,), "host stall", marks=pytest.mark.slow),
    ("NVIDIA__Megatron-LM/tp2/rank*.pt.trace.json.gz", "straggler", (0,), "device queue"),
    pytest.param(
        "astra-sim__astra-sim/megatron-tp8/*kineto*", "straggler", (0, 6), "host stall", marks=pytest.mark.slow
    ),
    (f"{PUBLISHED}/trace-ST.parquet", "stage_imbalance", (6, 7), "stage 3"),
    pytest.param(f"{PUBLISHED}/trace-AR.parquet", "straggler", (0,), "slow device", marks=pytest.mark.slow),
    pytest.param(f"{PUBLISHED}/trace-SE.parquet", "work_imbalance", (), "microbatches", marks=pytest.mark.slow),
]
FIXED = ["sst_long_a2a_optimizer_4", "sst_long_a2a_optimizer_5", "sst_long_a2a_optimizer_qcomm_trace"]
pytestmark = needs_traces


@pytest.fixture(scope="session")
def real_run(tmp_path_factory):
    return real_runs(tmp_path_factory)


def found(real_run, pattern):
    with Run.open(real_run(*sorted(TRACES.glob(pattern)))) as run:
        return diagnosis(Case(run)).findings


@pytest.mark.parametrize(("pattern", "cause", "ranks", "says"), KNOWN)
def test_the_known_cause_is_the_first_finding(pattern, cause, ranks, says, real_run):
    first = found(real_run, pattern)[0]
    assert (first.cause, first.ranks) == (cause, ranks)
    assert says in first.what


@pytest.mark.slow
@pytest.mark.parametrize("name", FIXED)
def test_the_rank_that_slept_is_not_late_when_it_is_fixed(name, real_run):
    assert "straggler" not in {one.cause for one in found(real_run, f"{TORCHREC}/{name}/*.gz")}


@pytest.mark.slow
def test_what_the_slow_worker_costs_is_as_published(real_run):
    """By the published replay without its slowness: 1 - 1 / 1.973."""
    published = json.loads((TRACES / PUBLISHED / "result-AR.json").read_text())["blocking_slowdown"]
    first = found(real_run, f"{PUBLISHED}/trace-AR.parquet")[0]
    assert first.saving.value == pytest.approx(1 - 1 / published, abs=0.03)
