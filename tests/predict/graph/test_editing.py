"""Edits of graphs: what they change, and that they leave all else."""

from __future__ import annotations

import numpy as np
from tests.predict.graph.tiny import L, M, T, graph, starts

from lostflops.predict.graph.editing import (
    drop_tasks,
    in_order,
    insert_tasks,
    rearrange_tasks,
    retime_graph,
    scale_rows,
    skip_tasks,
    with_edges,
    with_lanes,
    with_meetings,
)
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import LaneKind, TaskGraph, TaskKind, TaskMeetings


def job() -> TaskGraph:
    return graph(
        [
            L(0, LaneKind.HOST, [T("launch", 2, 3, TaskKind.LAUNCH), T("sync", 1, 0, TaskKind.SYNC), T("after", 4)]),
            L(0, LaneKind.STREAM, [T("kernel", 20, 1, TaskKind.KERNEL), T("reduce", 0, 0, TaskKind.COMM, "x")]),
        ],
        [("launch", "kernel", 5, True), ("kernel", "sync", 2)],
        {"x": M(7)},
        [(0, 0, "launch", "after")],
    )


def row(made: TaskGraph, name: str) -> int:
    return int(np.flatnonzero(made.tasks.name == made.word(name))[0])


def test_other_times():
    made = job()
    faster = retime_graph(made, duration=scale_rows(made.tasks.duration, made.tasks.kind == TaskKind.KERNEL, 0.5))
    assert starts(faster, replay(faster).start)["after"] == 5 + 10 + 2 + 1
    assert starts(made, replay(made).start)["after"] == 5 + 20 + 2 + 1


def test_what_is_removed_takes_nothing_and_waits_for_nothing():
    made = job()
    without = skip_tasks(made, np.array([row(made, "sync")]))
    assert starts(without, replay(without).start)["after"] == 2 + 3
    assert len(without.edges) == 1


def test_inserted_tasks_stand_behind_theirs_and_all_indices_follow():
    made = job()
    kernel = row(made, "kernel")
    more, new, moved = insert_tasks(made, made.tasks.take(np.array([kernel, kernel])), np.array([kernel, kernel]))
    more.self_check()
    assert new.tolist() == [4, 5]
    assert moved.tolist() == [0, 1, 2, 3, 6]
    assert more.tasks.lane.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert more.steps.last.tolist() == [2]
    assert more.measured.start[new].tolist() == [-1, -1]
    assert replay(more).stop[6] == 5 + 3 * 21 + 7
    assert starts(made, replay(made).start)["after"] == replay(more).start[2]


def test_a_task_at_the_begin_of_a_lane_and_on_a_new_one():
    made = job()
    wider, lanes = with_lanes(made, np.array([0]), LaneKind.STREAM, "stream 9")
    new = wider.tasks.take(np.array([row(wider, "kernel")] * 2))._replace(lane=np.array([1, lanes[0]], np.int32))
    more, at, moved = insert_tasks(wider, new, np.array([-1, -1]))
    more.self_check()
    assert at.tolist() == [3, 6]
    waiting = with_edges(more, np.array([moved[row(wider, "launch")]]), at[:1], 5, after_start=True)
    done = replay(waiting)
    assert done.start[at].tolist() == [5, 0]
    assert done.start[moved[row(wider, "kernel")]] == 5 + 21


def test_a_meeting_more():
    made = job()
    one = TaskMeetings(*(getattr(made.meetings, name)[:1] for name in TaskMeetings.__slots__))
    wider, number = with_meetings(made, one)
    comm = row(made, "reduce")
    new = wider.tasks.take(np.array([comm]))._replace(meeting=number)
    more, at, _ = insert_tasks(wider, new, np.array([comm]))
    more.self_check()
    assert replay(more).stop[at].tolist() == [26 + 7 + 7]


def test_inserted_at_the_end_of_one_lane_and_the_begin_of_the_next():
    made = job()
    new = made.tasks.take(np.array([row(made, "kernel"), row(made, "after")]))
    changed, fresh, _ = insert_tasks(made, new, np.array([-1, row(made, "after")]))
    changed.self_check()
    assert changed.tasks.lane[fresh].tolist() == [1, 0]


def test_dropped_tasks_leave_no_trace():
    made = job()
    changed = drop_tasks(made, np.array([row(made, "reduce"), row(made, "sync")]))
    changed.self_check()
    assert len(changed.meetings) == 0
    assert starts(changed, replay(changed).start) == {"launch": 0, "after": 5, "kernel": 5}


def test_turns_on_a_link_go_by_the_order_of_meetings():
    lanes = [L(rank, LaneKind.STREAM, [T(name, 0, 0, TaskKind.COMM, name)]) for rank, name in enumerate("xy")]
    made = graph(lanes, meetings={"x": M(7, link=0), "y": M(5, link=0)})
    changed = in_order(made, np.array([1, 0]))
    assert starts(changed, replay(changed).stop) == {"x": 12, "y": 5}


def test_tasks_change_places():
    made = job()
    key = np.array([1, 0, 2, 3, 4])
    changed = rearrange_tasks(made, made.tasks.lane, key)
    names = [changed.words[name] for name in changed.tasks.name.tolist()]
    assert names == ["sync", "launch", "after", "kernel", "reduce"]
    assert changed.edges.src.tolist() == [1, 3]
