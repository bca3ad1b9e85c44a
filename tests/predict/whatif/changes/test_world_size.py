"""More ranks with the same work: transfers of groups that grow."""

from __future__ import annotations

import pytest
from tests.predict.whatif.changes.linear import facts
from tests.predict.whatif.changes.steps import MIB, job

from lostflops.core.errors import NotApplicable, UsageError
from lostflops.predict.whatif.changes.world_size import CHANGE


def test_transfers_grow_as_the_costs_say():
    """A ring of 2 moves S, of 8 moves 2 * 7 / 8 S."""
    before = job(lambda *_: 50, transfer=(MIB, 2 * MIB))
    found = CHANGE.apply(before, "8", facts(0.0, 1.0))
    assert found.graph.meetings.transfer.tolist() == pytest.approx([1.75 * MIB, 3.5 * MIB] * 2)


def test_one_rank_exchanges_nothing():
    found = CHANGE.apply(job(lambda *_: 50), "1", facts(5.0, 1.0))
    assert not found.graph.meetings.transfer.any()


def test_ranks_that_vary_widen_the_answer():
    even = CHANGE.apply(job(lambda *_: 50, steps=6), "8", facts(0.0, 1.0))
    varied = CHANGE.apply(job(lambda rank, step: 50 + 40 * ((rank + step) % 2), steps=6), "8", facts(0.0, 1.0))
    assert even.extra["later_ns"] == 0 < varied.extra["later_ns"]
    assert even.off == 0 < varied.off


def test_what_all_ranks_of_a_step_have_in_common_makes_none_later():
    """Every second step waits for its data, on every rank."""
    found = CHANGE.apply(job(lambda _, step: 50 + 40 * (step % 2), steps=6), "8", facts(0.0, 1.0))
    assert found.extra["later_ns"] == 0


def test_other_groups_do_not_tell():
    with pytest.raises(NotApplicable, match="no group spans"):
        CHANGE.apply(_halves(), "8", facts())


def _halves():
    """Groups of four of which two ranks were recorded."""
    made = job(lambda *_: 50)
    made.meetings.ranks[:] = 4
    return made


def test_values_are_whole_numbers():
    with pytest.raises(UsageError):
        CHANGE.apply(job(lambda *_: 50), "2.5", facts())


def test_as_many_as_there_are():
    with pytest.raises(UsageError, match="already has 2 ranks"):
        CHANGE.apply(job(lambda *_: 50), "2", facts())
