"""What changes may know of a run."""

import pytest

from lostflops.core.errors import UnknownCost
from lostflops.predict.costs.times import CommGroup
from lostflops.predict.whatif.run_facts import facts_of, own_times
from made_whatif import TRANSFER, made
from memory_run import MemoryRun


def test_what_the_collector_read_is_decoded() -> None:
    with MemoryRun(
        ranks=[{"rank": 1, "device": "NVIDIA H100 80GB HBM3", "backend": "nccl"}],
        job=[
            {"rank": 1, "attempt": 0, "key": "torch", "value": '"2.7.0"'},
            {"rank": 1, "attempt": 1, "key": "torch", "value": '"2.8.0"'},
            {"rank": 1, "attempt": 1, "key": "ddp", "value": '{"bucket_mb": 25}'},
            {"rank": 2, "attempt": 1, "key": "ddp", "value": '{"bucket_mb": 50}'},
        ],
        parameters=[
            {"rank": 1, "position": 1, "name": "b", "bytes": 8, "bucket": None},
            {"rank": 1, "position": 0, "name": "a", "bytes": 4, "bucket": 0},
            {"rank": 2, "position": 0, "name": "a", "bytes": 4, "bucket": 0},
        ],
    ) as run:
        facts = facts_of(run, made())
    assert (facts.device, facts.backend) == ("NVIDIA H100 80GB HBM3", "nccl")
    assert facts.job == {"torch": "2.8.0", "ddp": {"bucket_mb": 25}}
    assert facts.parameters == (("a", 4, 0), ("b", 8, None))


def test_a_run_that_tells_nothing() -> None:
    with MemoryRun() as run:
        facts = facts_of(run, made(()))
    assert (facts.times, facts.device, facts.job, facts.parameters, facts.layout) == (None, None, {}, (), None)


def test_transfers_tell_what_others_take() -> None:
    with MemoryRun() as run:
        times = facts_of(run, made()).times
    assert times is not None
    assert times.time("all_reduce", 1_000_000, CommGroup(2, 1)).ns == pytest.approx(TRANSFER)
    with pytest.raises(UnknownCost):
        times.time("all_to_all", 1_000_000, CommGroup(2, 1))


def test_meetings_that_lack_a_member_tell_nothing() -> None:
    graph = made()
    graph.meetings.whole[:] = False
    assert not own_times(graph, "nccl").samples
