"""A rank that sleeps, in traces of a real job."""

from __future__ import annotations

import pytest
from tests.shared_data import TRACES, needs_traces

from lostflops import Run
from lostflops.explain.advise.case import Case
from lostflops.ingest.ingest import ingest
from lostflops.predict.graph.build import build
from lostflops.predict.graph.replay import replay
from lostflops.predict.whatif.change import Facts
from lostflops.predict.whatif.changes.straggler import CHANGE

GAPS_MS = (1003.0, 1003.5, 1001.7)
"""On the device of rank 2, which sleeps for a second before an all-to-all in each step."""


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("torchrec") / "run"
    ingest(sorted((TRACES / "meta-pytorch__torchrec" / "sst_long_a2a_optimizer_2").glob("*.json.gz")), folder)
    with Run.open(folder) as run:
        late = tuple(one.rank for one in Case(run).judgement.late)
        return build(run), Facts(times=None, late=lambda: late)


@needs_traces
def test_the_rank_that_sleeps_is_named(job):
    graph, facts = job
    assert CHANGE.apply(graph, "removed", facts).extra["ranks"] == [2]


@needs_traces
def test_steps_without_the_sleep(job):
    graph, facts = job
    measured = float(graph.steps.measured.mean()) / 1e6
    changed = replay(CHANGE.apply(graph, "removed", facts).graph)
    predicted = measured * changed.mean_step / replay(graph).mean_step
    assert predicted == pytest.approx(measured - sum(GAPS_MS) / len(GAPS_MS), rel=0.05)
