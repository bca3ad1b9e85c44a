"""Stretches without an op that all ranks end at the same moment are waits for each other."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from tests.predict.graph.tiny import L, T, graph

from lostflops.predict.graph.host_meetings import HOST_WAIT, host_meetings
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import LaneKind, MeasuredTimes, TaskGraph

MS = 1_000_000


def on_hosts(*names: str | None) -> SimpleNamespace:
    return SimpleNamespace(rows=lambda _: [(name,) for name in names])


def ranks(begins: list[int], ends: list[int]) -> TaskGraph:
    """Each computes until its begin, and does something without an op until its end."""
    lanes = [
        L(rank, LaneKind.HOST, [T(f"op {rank}", begin), T(f"python {rank}", end - begin, line="idle.python")])
        for rank, (begin, end) in enumerate(zip(begins, ends, strict=True))
    ]
    made = graph(lanes)
    start = np.array([time for begin in begins for time in (0, begin)])
    stop = np.array([time for pair in zip(begins, ends, strict=True) for time in pair])
    return replace(made, measured=MeasuredTimes(start, stop))


def test_ranks_that_end_together_wait_for_the_last():
    made = host_meetings(on_hosts("a"), ranks([10 * MS, 20 * MS, 15 * MS], [22 * MS, 22 * MS, 22 * MS + 30_000]))
    assert made.words[made.meetings.op[0]] == HOST_WAIT
    assert made.meetings.transfer.tolist() == [2 * MS]
    made.self_check()
    assert replay(made).stop.max() == 22 * MS
    sooner = made.tasks.duration.copy()
    sooner[2] -= 10 * MS
    earlier = replay(replace(made, tasks=made.tasks._replace(duration=sooner)))
    assert earlier.stop.max() == 17 * MS


@pytest.mark.parametrize(
    ("begins", "ends", "hosts"),
    [
        ([10, 20, 15], [22, 25, 22], ["a"]),
        ([10, 10, 10], [22, 22, 22], ["a"]),
        ([10, 20], [22, 22], ["a"]),
        ([10, 20, 15], [22, 22, 22], ["a", "b"]),
        ([10, 20, 15], [22, 22, 22], [None]),
    ],
    ids=["ends apart", "begun together", "two ranks", "two clocks", "hosts not recorded"],
)
def test_what_may_be_chance_is_left(begins: list[int], ends: list[int], hosts: list[str | None]):
    made = ranks([MS * time for time in begins], [MS * time for time in ends])
    assert host_meetings(on_hosts(*hosts), made) is made


def test_a_stretch_is_of_one_meeting_alone():
    """Rank 2 has two threads: either could have waited with the others, but not both."""
    lanes = [
        L(rank, LaneKind.HOST, [T(f"op {at}", begin), T(f"python {at}", 2 * MS, line="idle.python")])
        for at, (rank, begin) in enumerate([(0, MS), (1, 2 * MS), (2, 20 * MS), (2, 20 * MS)])
    ]
    start, stop = [0, MS, 0, 2 * MS, 0, 20 * MS, 0, 20 * MS], [0, 22.01, 0, 22.02, 0, 22, 0, 22.03]
    recorded = MeasuredTimes(np.array(start), np.array([int(MS * time) for time in stop]))
    made = host_meetings(on_hosts("a"), replace(graph(lanes), measured=recorded))
    assert np.bincount(made.tasks.meeting[made.tasks.meeting >= 0]).tolist() == [3]
