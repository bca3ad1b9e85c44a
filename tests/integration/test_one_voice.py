"""The same number for the same thing, from every verb, JSON, page and Markdown."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lostflops.core.errors import SeveralJobs, UnknownFormat, UsageError
from lostflops.testing import Straggler, SyntheticCluster, store
from lostflops.testing.demo import demo_cluster
from shared_data import TRACES, needs_traces
from tests.integration.real_runs import real_runs
from tests.integration.statements import contradictions

MADE = {
    "demo": lambda: demo_cluster(8),
    "healthy": lambda: SyntheticCluster(ranks=4, steps=6),
    "late": lambda: SyntheticCluster(ranks=4, steps=6, stragglers=(Straggler(1, "slow_kernels", factor=1.4),)),
}
FILES = sorted(path.relative_to(TRACES) for path in TRACES.rglob("*.json.gz")) if TRACES.exists() else []
SETS = sorted({path.parent if len(path.parts) > 2 else path for path in FILES})
"""Folders, mostly of one job, and files that are a job each."""
RECORDED = sorted(Path(os.environ.get("LOSTFLOPS_RUNS", "/nonexistent")).glob("*/sick"))
"""Runs of the clinic, where somebody kept them: python -m clinic --keep DIR, then LOSTFLOPS_RUNS=DIR."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "late" else pytest.mark.slow) for name in MADE]
)
def test_all_verbs_agree_on_made_runs(name: str, tmp_path: Path) -> None:
    assert contradictions(store(MADE[name]().generate(), tmp_path / "run")) == []


@pytest.fixture(scope="session")
def real_run(tmp_path_factory):
    return real_runs(tmp_path_factory)


@pytest.mark.slow
@needs_traces
def test_all_verbs_agree_on_a_recorded_job(real_run) -> None:
    assert contradictions(real_run(*sorted(TRACES.glob("KellerJordan__modded-nanogpt/2025-12-11*/*.gz")))) == []


@pytest.mark.slow
@needs_traces
@pytest.mark.parametrize("source", SETS, ids=str)
def test_all_verbs_agree_on_every_shared_trace(source: Path, real_run) -> None:
    place = TRACES / source
    try:
        runs = [real_run(place)]
    except SeveralJobs:
        runs = [real_run(path) for path in sorted(place.glob("*.json.gz"))]
    except (UnknownFormat, UsageError):
        pytest.skip("in no format that Lostflops reads")
    assert [text for run in runs for text in contradictions(run)] == []


@pytest.mark.slow
@pytest.mark.parametrize("run", RECORDED, ids=lambda run: run.parent.name)
def test_all_verbs_agree_on_runs_of_the_clinic(run: Path) -> None:
    assert contradictions(run) == []
