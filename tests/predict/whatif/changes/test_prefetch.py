"""All-gathers that are enqueued earlier or later."""

from __future__ import annotations

import pytest
from tests.predict.graph.tiny import L, M, T, graph
from tests.predict.whatif.changes.steps import job

from lostflops.account.ledger.phases import BACKWARD, FORWARD
from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import Because, LaneKind, TaskKind
from lostflops.predict.whatif.change import Facts
from lostflops.predict.whatif.changes.prefetch import CHANGE


def fsdp(depth, units=5, launch=30, compute=100, gather=80):
    """Forward pass of two ranks whose host is slow: each unit's gathering is enqueued `depth` units ahead."""
    lanes, edges, meetings = [], [], {"rs": M(1, op="reduce_scatter")}
    for rank in (0, 1):
        host, stream, comm = [], [], []

        def enqueue(unit, rank=rank, host=host, comm=comm):
            host.append(T(f"lg{rank}.{unit}", 1, kind=TaskKind.LAUNCH, phase=FORWARD))
            comm.append(T(f"g{rank}.{unit}", kind=TaskKind.COMM, meets=f"g{unit}", phase=FORWARD))
            meetings[f"g{unit}"] = M(gather, op="all_gather")
            edges.append((f"lg{rank}.{unit}", f"g{rank}.{unit}", 0, True))

        for unit in range(units):
            for early in range(units):
                if max(early - depth, 0) == unit:
                    enqueue(early)
            host.append(T(f"lk{rank}.{unit}", launch, kind=TaskKind.LAUNCH, phase=FORWARD))
            stream.append(T(f"k{rank}.{unit}", compute, kind=TaskKind.KERNEL, phase=FORWARD))
            host.append(T(f"s{rank}.{unit}", kind=TaskKind.SYNC, phase=FORWARD))
            edges.append((f"lk{rank}.{unit}", f"k{rank}.{unit}", 0, True))
            edges.append((f"g{rank}.{unit}", f"k{rank}.{unit}"))
            edges.append((f"k{rank}.{unit}", f"s{rank}.{unit}"))
        comm.append(T(f"rs{rank}", kind=TaskKind.COMM, meets="rs", phase=BACKWARD))
        edges.append((f"k{rank}.{units - 1}", f"rs{rank}"))
        lanes += [L(rank, LaneKind.HOST, host), L(rank, LaneKind.STREAM, stream), L(rank, LaneKind.STREAM, comm)]
    return graph(lanes, edges, meetings, [(0, 0, "", ""), (1, 0, "", "")], because=Because.LAUNCH)


@pytest.mark.parametrize("recorded", [0, 1])
@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_as_if_recorded_so(recorded, wanted):
    before = fsdp(recorded)
    if wanted == recorded:
        with pytest.raises(NotApplicable, match="already"):
            CHANGE.apply(before, str(wanted), Facts(times=None))
        return
    found = CHANGE.apply(before, str(wanted), Facts(times=None))
    found.graph.self_check()
    assert found.extra["recorded_prefetch"] == recorded
    assert replay(found.graph).mean_step == pytest.approx(replay(fsdp(wanted)).mean_step, rel=0.02)


def test_ahead_is_faster_where_the_host_waits():
    assert replay(fsdp(0)).mean_step > 1.5 * replay(fsdp(1)).mean_step


def test_jobs_that_gather_nothing_are_refused():
    with pytest.raises(NotApplicable, match="FSDP"):
        CHANGE.apply(job(lambda *_: 50), "1", Facts(times=None))
