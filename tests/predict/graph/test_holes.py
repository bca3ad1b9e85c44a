"""Two windows replay as if their steps followed each other, on lanes of every kind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.predict.graph.tiny import L, M, T, graph

from lostflops.predict.graph.holes import Hole, find_holes, without_holes
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import NONE, LaneKind, MeasuredTimes, TaskGraph, TaskKind

STEP, HOLE = 100, 5_000


def two_windows(hole: int = HOLE, lead: int = 0) -> TaskGraph:
    """Steps 8, 9 and 40, 41 of two ranks, each computing and then meeting; rank 1 begins the second window later by
    `lead`. The pause between the windows is a gap on the stream."""
    lanes, steps, times = [], [], []
    for rank in (0, 1):
        tasks, now = [], 0
        for number in (8, 9, 40, 41):
            if number == 40:
                now += hole + lead * rank
            pause = hole + lead * rank if number == 9 else 0
            tasks += [
                T(f"{rank} c{number}", 80, 0, TaskKind.KERNEL, step=number, line="compute"),
                T(f"{rank} x{number}", 0, pause, TaskKind.COMM, f"m{number}", number),
            ]
            times += [(now, now + 80), (now + 80, now + STEP)]
            now += STEP
            steps.append((rank, number, "", ""))
        lanes.append(L(rank, LaneKind.STREAM, tasks))
    made = graph(lanes, meetings={f"m{number}": M(20) for number in (8, 9, 40, 41)}, steps=steps)
    start, stop = (np.array(column, np.int64) for column in zip(*times, strict=True))
    return replace(made, measured=MeasuredTimes(start, stop))


def test_a_hole_is_where_all_ranks_lack_steps() -> None:
    assert find_holes(two_windows(lead=30)) == [Hole(200, 200 + HOLE)]
    assert find_holes(two_windows(hole=0)) == []


def test_steps_take_as_long_without_the_hole_and_follow_each_other() -> None:
    made = two_windows()
    closed = without_holes(made)
    before, after = replay(made), replay(closed)
    assert after.mean_step == before.mean_step == STEP
    assert int(after.stop.max()) == 4 * STEP
    assert int(before.stop.max()) == 4 * STEP + HOLE
    assert int(closed.measured.stop.max()) == 4 * STEP


def test_ranks_keep_their_distance() -> None:
    """Rank 1 begins the second window 30 later than rank 0: that is no hole, and stays."""
    closed = without_holes(two_windows(lead=30))
    started = replay(closed).start[closed.tasks.step == 40]
    assert sorted(started.tolist())[:2] == [200, 230]


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_task_that_spans_the_hole_is_cut(is_recorded: bool) -> None:
    """A thread computes in steps 8 and 40, and Python runs between them, of which a trace may hold nothing."""
    tasks = [
        T("a", STEP, 0, TaskKind.KERNEL, step=8, line="compute"),
        T("python", HOLE, 0, TaskKind.HOST, line="idle.python"),
        T("b", STEP, 0, TaskKind.KERNEL, step=40, line="compute"),
    ]
    made = graph([L(0, LaneKind.HOST, tasks)], steps=[(0, 8, "a", "a"), (0, 40, "b", "b")])
    middle = (STEP, STEP + HOLE) if is_recorded else (NONE, NONE)
    times = [(0, STEP), middle, (STEP + HOLE, 2 * STEP + HOLE)]
    start, stop = (np.array(column, np.int64) for column in zip(*times, strict=True))
    closed = without_holes(replace(made, measured=MeasuredTimes(start, stop)))
    assert closed.tasks.duration.tolist() == [STEP, 0, STEP]
    assert replay(closed).mean_step == STEP


def test_one_window_is_left_alone() -> None:
    made = two_windows(hole=0)
    assert without_holes(made) is made
