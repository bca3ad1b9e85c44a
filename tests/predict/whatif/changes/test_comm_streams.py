"""Reductions on several streams hide latency, and nothing else."""

from __future__ import annotations

import pytest
from tests.predict.whatif.changes.linear import facts
from tests.predict.whatif.changes.steps import MIB, job

from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import TaskKind
from lostflops.predict.whatif.changes.comm_streams import CHANGE


def test_latency_overlaps_and_bytes_take_turns():
    """Two reductions of 1,000 ns latency that are enqueued together."""
    before = job(lambda *_: 50, transfer=(1000 + MIB, 1000 + 2 * MIB), steps=1, backward=0)
    found = CHANGE.apply(before, "2", facts(1000.0, 1.0)).graph
    found.self_check()
    assert replay(before).step_times.tolist() == [50 + 2000 + 3 * MIB + 30] * 2
    assert replay(found).step_times.tolist() == [50 + 1000 + 3 * MIB + 30] * 2
    comm = found.tasks.lane[found.tasks.kind == TaskKind.COMM]
    assert len(set(comm.tolist())) == 4


def test_one_stream_is_as_recorded():
    before = job(lambda *_: 50, transfer=(1000 + MIB, 1000 + 2 * MIB))
    found = CHANGE.apply(before, "1", facts(1000.0, 1.0)).graph
    assert replay(found).step_times.tolist() == replay(before).step_times.tolist()


def test_without_latency_nothing_is_told():
    with pytest.raises(NotApplicable, match="latency is unknown"):
        CHANGE.apply(job(lambda *_: 50), "2", facts(0.0, 1.0))
