"""Microbatches before the reduction."""

from __future__ import annotations

import pytest

from lostflops.graph.replay import replay
from lostflops.predict.change import Facts, NotApplicable
from lostflops.predict.changes.accumulate import CHANGE
from predict.changes.steps import job


def forward(rank, step):
    return 50 + 10 * rank + 5 * step


@pytest.mark.parametrize("batches", [2, 3, 5])
def test_as_if_recorded_so(batches):
    found = CHANGE.apply(job(forward), str(batches), Facts(None)).graph
    found.self_check()
    truth = job(forward, batches=batches)
    assert replay(found).step_times.tolist() == replay(truth).step_times.tolist()
    assert len(found.meetings) == len(truth.meetings)


def test_once_is_what_was_recorded():
    with pytest.raises(NotApplicable):
        CHANGE.apply(job(forward), "1", Facts(None))


def test_more_than_can_be_replayed_is_refused():
    with pytest.raises(NotApplicable, match="too many to replay"):
        CHANGE.apply(job(forward, steps=100), "1000000", Facts(None))
