"""The launch queue against a count of all launches at every moment at which anything happens."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lostflops.account.align.queue_depth import QueueDepth, queue_depth, read_queue
from lostflops.ingest import ingest
from lostflops.store.run import Run
from lostflops.testing import SyntheticCluster, store
from memory_run import MemoryRun
from shared_data import TRACES, needs_traces

DEVICE = ("kernel", "comm", "memcpy", "memset")


def check(found: QueueDepth, pairs: list[tuple[int, int]]) -> None:
    """Compare the depth at every launch and start, and just before each."""
    launched, start = np.array(pairs, np.int64).reshape(-1, 2).T
    moments = np.unique(np.concatenate((launched, start)))
    moments = np.unique(np.concatenate((moments - 1, moments)))
    expected = [int(((launched <= moment) & (moment < start)).sum()) for moment in moments.tolist()]
    place = np.searchsorted(found.time, moments, side="right") - 1
    assert np.where(place < 0, 0, np.append(found.depth, 0)[place]).tolist() == expected
    assert (found.depth >= 0).all()
    assert found.depth.max(initial=0) == max(expected, default=0)
    assert found.launched == len(pairs)
    assert found.early == sum(late > begins for late, begins in pairs)


def launches(run: Run, rank: int) -> list[tuple[int, int]]:
    """When each kernel and copy was launched, by its earliest call, and when it started."""
    rows = run.sql(f"select kind, correlation, start from events where rank = {rank} and correlation is not null")
    calls: dict[int, int] = {}
    work = []
    for kind, correlation, start in rows.fetchall():
        if kind == "runtime":
            calls[correlation] = min(start, calls.get(correlation, start))
        elif kind in DEVICE:
            work.append((correlation, start))
    return [(calls[correlation], start) for correlation, start in work if correlation in calls]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=40))
def test_the_depth_is_that_of_a_count(pairs):
    launched, start = np.array(pairs, np.int64).reshape(-1, 2).T
    check(queue_depth(launched, start), pairs)


def test_work_that_seems_to_start_before_its_launch_is_counted_and_never_queued():
    rows = [("runtime", 0, 7), ("kernel", 30, 7), ("runtime", 20, 8), ("kernel", 15, 8), ("kernel", 40, 9)]
    events = [
        {"rank": 0, "event": at, "lane": 0, "kind": kind, "start": start, "dur": 5, "correlation": link}
        for at, (kind, start, link) in enumerate(rows)
    ]
    with MemoryRun(ranks=[{"rank": 0, "events": len(events)}], events=events) as run:
        found = read_queue(run, 0)
    assert list(zip(found.time.tolist(), found.depth.tolist(), strict=True)) == [(0, 1), (30, 0)]
    assert (found.launched, found.early) == (2, 1)


def test_the_queue_of_each_rank_of_a_cluster(tmp_path):
    with Run.open(store(SyntheticCluster(ranks=2, steps=3).generate(), tmp_path / "run")) as run:
        for rank in run.ranks:
            pairs = launches(run, rank)
            assert len(pairs) > 50
            check(read_queue(run, rank), pairs)


@needs_traces
@pytest.mark.parametrize(
    "trace",
    [
        "facebookresearch__HolisticTraceAnalysis/negative_queue_length_values_check__rank0.json.gz",
        "AMD-AGI__TraceLens/HIST_mi300_ddp_resnet18_train.json.gz",
    ],
)
@pytest.mark.few(1)
def test_the_queue_of_a_real_rank(trace, tmp_path):
    ingest([TRACES / trace], tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        pairs = launches(run, run.ranks[0])
        assert len(pairs) > 1000
        check(read_queue(run, run.ranks[0]), pairs)
