"""A rank that sleeps, in traces of a real job."""

from __future__ import annotations

import pytest
from tests.shared_data import TRACES, needs_traces

from lostflops import Run
from lostflops.graph.build import build
from lostflops.graph.replay import replay
from lostflops.ingest.ingest import ingest
from lostflops.predict.change import Facts
from lostflops.predict.changes.straggler import CHANGE

GAPS_MS = (1003.0, 1003.5, 1001.7)
"""On the device of rank 2, which sleeps for a second before an all-to-all in each step."""


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    folder = tmp_path_factory.mktemp("torchrec") / "run"
    ingest(sorted((TRACES / "meta-pytorch__torchrec" / "sst_long_a2a_optimizer_2").glob("*.json.gz")), folder)
    with Run.open(folder) as run:
        return build(run)


@needs_traces
@pytest.mark.slow
def test_the_rank_that_sleeps_is_named(graph):
    assert CHANGE.apply(graph, "removed", Facts(times=None)).extra["ranks"] == [2]


@needs_traces
@pytest.mark.slow
@pytest.mark.xfail(
    strict=True,
    reason="predicts 230.5 ms, 5.4% above the 218.7 ms without the gaps: the others arrive at the all-to-all 996.0 to "
    "997.7 ms before rank 2 does, not 1002.7, which is 6.0 of the 11.8 ms; and a stretch of each step that the graph "
    "has as Python ends within 0.1 ms on all ranks, as a wait does: cut to the shortest it is 226.7 ms",
)
def test_steps_without_the_sleep(graph):
    measured = float(graph.steps.measured.mean()) / 1e6
    changed = replay(CHANGE.apply(graph, "removed", Facts(times=None)).graph)
    predicted = measured * changed.mean_step / replay(graph).mean_step
    assert predicted == pytest.approx(measured - sum(GAPS_MS) / len(GAPS_MS), rel=0.05)
