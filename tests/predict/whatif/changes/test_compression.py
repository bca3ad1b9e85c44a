"""Fewer bytes, and what casting costs."""

from __future__ import annotations

import pytest
from tests.predict.whatif.changes.linear import facts
from tests.predict.whatif.changes.steps import MIB, job

from lostflops.core.errors import UsageError
from lostflops.predict.graph.replay import replay
from lostflops.predict.whatif.changes.compression import CHANGE


def test_bytes_shrink_and_casting_costs():
    before = job(lambda *_: 50, transfer=(MIB, 2 * MIB), steps=1, backward=0)
    found = CHANGE.apply(before, "bf16", facts(0.0, 1.0)).graph
    cast = [round(size * 1.5 / 5) for size in (MIB, 2 * MIB)]
    assert found.meetings.transfer.tolist() == [MIB // 2, MIB]
    decoded = replay(found).step_times.tolist()[0] - 80 - MIB - MIB // 2
    assert decoded == sum(cast), "on one thread, each is decoded before the next is reduced"


def test_others_stay():
    before = job(lambda *_: 50)
    assert CHANGE.apply(before, "0.25x", facts()).graph.meetings.size.tolist() == before.meetings.size.tolist()


@pytest.mark.parametrize("value", ["1x", "2x"])
def test_as_many_bytes_or_more_are_no_compression(value):
    with pytest.raises(UsageError, match="fraction of the bytes that is left"):
        CHANGE.apply(job(lambda *_: 50), value, facts())
