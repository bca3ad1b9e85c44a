"""Matching and clocks together: what two ranks alone cannot tell, all calls together can."""

from collections import defaultdict

from tests.memory_run import MemoryRun

from lostflops.account.align.clock_tables import Aligned

AHEAD = 5_000_000
PACE = 1_000_000
LENGTH = 100_000


def call(rank, event, start, **more):
    """A call on the clock of its rank, the second of which is ahead."""
    shown = start + (AHEAD if rank else 0)
    return {
        "rank": rank,
        "event": event,
        "lane": 0,
        "start": shown,
        "stop": shown + LENGTH,
        "metadata": "kernel",
        **more,
    }


def transfers(rank, numbers):
    """Sends of rank 0 to rank 1 at a steady pace; all look alike."""
    more = {"op": "send" if rank == 0 else "recv", "peer": 1 - rank, "group_id": "1@0-1", "lane": 1}
    return [call(rank, 100 + number, PACE * number, **more) for number in numbers]


def reductions(rank):
    more = {"op": "all_reduce", "group_id": "0@0-1", "bytes_in": 8}
    return [call(rank, number, 3 * PACE * number + 500_000, seq=number, **more) for number in range(8)]


def test_transfers_that_lost_their_ends_are_told_by_the_common_clock():
    """The first record of the sender is lost, and the last of the receiver: by themselves both sides look complete, and
    shifted by one."""
    rows = [*transfers(0, range(1, 20)), *transfers(1, range(19)), *reductions(0), *reductions(1)]
    run = MemoryRun(collectives=rows)
    found = Aligned(lambda sql: run.sql(sql).fetchnumpy(), "collectives", {"0@0-1": 2, "1@0-1": 2}, {0: None, 1: None})
    assert found.clocks()["correction"].tolist() == [0, -AHEAD]
    met = defaultdict(list)
    for _, columns in found.arrivals():
        for meeting, event, seen in zip(columns["meeting"], columns["event"], columns["seen"], strict=True):
            if seen == 2 and event >= 100:
                met[int(meeting)].append(int(event))
    assert sorted(met.values()) == [[event, event] for event in range(101, 119)]
