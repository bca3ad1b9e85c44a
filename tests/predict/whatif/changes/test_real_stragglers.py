"""A rank that sleeps, in traces of a real job."""

from __future__ import annotations

import pytest
from tests.shared_data import TRACES, needs_traces

from lostflops import Run
from lostflops.ingest.ingest import ingest
from lostflops.predict.graph.build import build
from lostflops.predict.graph.replay import replay
from lostflops.predict.whatif.change import Facts
from lostflops.predict.whatif.changes.straggler import CHANGE

GAPS_MS = (1003.0, 1003.5, 1001.7)
"""On the device of rank 2, which sleeps for a second before an all-to-all in each step."""


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    folder = tmp_path_factory.mktemp("torchrec") / "run"
    ingest(sorted((TRACES / "meta-pytorch__torchrec" / "sst_long_a2a_optimizer_2").glob("*.json.gz")), folder)
    with Run.open(folder) as run:
        return build(run)


@needs_traces
def test_the_rank_that_sleeps_is_named(graph):
    assert CHANGE.apply(graph, "removed", Facts(times=None)).extra["ranks"] == [2]


@needs_traces
def test_steps_without_the_sleep(graph):
    measured = float(graph.steps.measured.mean()) / 1e6
    changed = replay(CHANGE.apply(graph, "removed", Facts(times=None)).graph)
    predicted = measured * changed.mean_step / replay(graph).mean_step
    assert predicted == pytest.approx(measured - sum(GAPS_MS) / len(GAPS_MS), rel=0.05)
