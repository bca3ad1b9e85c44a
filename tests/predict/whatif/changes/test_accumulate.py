"""Microbatches before the reduction."""

from __future__ import annotations

import pytest
from tests.predict.whatif.changes.steps import job

from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.replay import replay
from lostflops.predict.whatif.change import Facts
from lostflops.predict.whatif.changes.accumulate import CHANGE


def forward(rank, step):
    return 50 + 10 * rank + 5 * step


@pytest.mark.parametrize("batches", [2, 3, 5])
def test_as_if_recorded_so(batches):
    found = CHANGE.apply(job(forward), str(batches), Facts(times=None)).graph
    found.self_check()
    truth = job(forward, batches=batches)
    assert replay(found).step_times.tolist() == replay(truth).step_times.tolist()
    assert len(found.meetings) == len(truth.meetings)


def test_once_is_what_was_recorded():
    with pytest.raises(NotApplicable):
        CHANGE.apply(job(forward), "1", Facts(times=None))


def test_more_than_can_be_replayed_is_refused():
    with pytest.raises(NotApplicable, match="too many to replay"):
        CHANGE.apply(job(forward, steps=100), "1000000", Facts(times=None))
