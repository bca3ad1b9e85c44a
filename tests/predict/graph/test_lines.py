"""Schedules of hand-made graphs on the lines of the ledger."""

from __future__ import annotations

from hypothesis import given
from tests.predict.graph.test_path import graphs
from tests.predict.graph.tiny import L, M, T, graph

from lostflops.predict.graph.editing import with_edges
from lostflops.predict.graph.lines import mean_lines, step_lines
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import Because, LaneKind, TaskKind


def held(made):
    """Lines that hold anything, of one step of one rank."""
    return {line: ns for line, ns in mean_lines(replay(made)).items() if ns}


def launched(*names):
    return [(f"launch {name}", name, 2, True) for name in names]


def call(name, duration=2, gap=0):
    return T(f"launch {name}", duration, gap, TaskKind.LAUNCH)


def kernel(name, duration=10, gap=0):
    return T(name, duration, gap, TaskKind.KERNEL, line="compute")


def test_a_gap_before_a_late_launch_is_what_the_host_did():
    batch = T("next", 30, 5, TaskKind.DATA, line="idle.data")
    python = T("log", 11, line="idle.python")
    made = graph(
        [
            L(0, LaneKind.HOST, [call("a"), batch, python, T("op", 7), call("b")]),
            L(0, LaneKind.STREAM, [kernel("a"), kernel("b")]),
        ],
        launched("a", "b"),
        steps=[(0, 0, "", "")],
        because=Because.LAUNCH,
    )
    assert held(made) == {"compute": 20, "idle.data": 20, "idle.python": 11, "idle.host": 14}


def test_a_gap_after_a_sync_is_refilling_up_to_the_next_launch():
    sync = T("sync", 1, 0, TaskKind.SYNC, line="idle.sync")
    made = graph(
        [
            L(0, LaneKind.HOST, [call("a"), sync, T("op", 7), call("b"), T("op 2", 40), call("c")]),
            L(0, LaneKind.STREAM, [kernel("a"), kernel("b"), kernel("c")]),
        ],
        [*launched("a", "b", "c"), ("a", "sync")],
        steps=[(0, 0, "", "")],
        because=Because.LAUNCH,
    )
    assert held(made) == {"compute": 30, "idle.sync": 8, "idle.host": 34}


def test_queued_work_that_starts_late_waited_for_its_device():
    made = graph(
        [
            L(0, LaneKind.HOST, [call("a"), call("b"), call("c")]),
            L(0, LaneKind.STREAM, [kernel("a", gap=3), kernel("b")]),
            L(0, LaneKind.STREAM, [kernel("c")]),
        ],
        launched("a", "b", "c"),
        steps=[(0, 0, "", "")],
        because=Because.LAUNCH,
    )
    made = with_edges(made, [4], [5], 4)
    assert held(made) == {"compute": 30, "idle.dependency": 7}


def test_what_a_mark_holds_up_was_queued():
    made = graph(
        [
            L(0, LaneKind.HOST, [call("a"), call("mark")]),
            L(
                0,
                LaneKind.STREAM,
                [kernel("a"), T("mark", 30, kind=TaskKind.MARK, line="idle.dependency"), kernel("b")],
            ),
        ],
        launched("a", "mark"),
        steps=[(0, 0, "", "")],
        because=Because.LAUNCH,
    )
    assert held(made) == {"compute": 20, "idle.dependency": 30}


def test_waits_are_told_from_transfers_and_hidden_ones_do_not_count():
    made = graph(
        [
            L(0, LaneKind.STREAM, [kernel("a"), T("x0", 0, 0, TaskKind.COMM, "x", line="comm.transfer")]),
            L(0, LaneKind.STREAM, [kernel("b", 14)]),
            L(1, LaneKind.STREAM, [kernel("c", 30), T("x1", 0, 0, TaskKind.COMM, "x", line="comm.transfer")]),
        ],
        meetings={"x": M(7)},
        steps=[(0, 0, "", ""), (1, 0, "", "")],
    )
    rows = step_lines(replay(made))
    assert rows[:, :3].tolist() == [[14, 7, 16], [30, 7, 0]]
    assert rows[:, 3:].sum() == 0


def test_a_pipeline_that_waits_for_its_neighbour_is_in_a_bubble():
    made = graph(
        [
            L(0, LaneKind.STREAM, [kernel("a", 20), T("s", 0, 0, TaskKind.COMM, "x", line="comm.transfer")]),
            L(1, LaneKind.STREAM, [kernel("b", 5), T("r", 0, 0, TaskKind.COMM, "x", line="comm.transfer")]),
        ],
        meetings={"x": M(3, op="send")},
        steps=[(1, 0, "", "")],
    )
    assert held(made) == {"compute": 5, "comm.transfer": 3, "comm.bubble": 15}


def test_a_rank_without_a_device_is_told_by_its_thread():
    wait = T("wait", 1, 0, TaskKind.SYNC, line="idle.sync")
    made = graph(
        [
            L(
                0,
                LaneKind.HOST,
                [
                    T("first", kind=TaskKind.MARK),
                    T("next", 6, 4, TaskKind.DATA, line="idle.data"),
                    T("mm", 20, 0, TaskKind.KERNEL, line="compute"),
                    wait,
                    T("last", kind=TaskKind.MARK),
                ],
            ),
            L(0, LaneKind.COMM_THREAD, [T("gloo", 0, 0, TaskKind.COMM, "x", line="comm.transfer")]),
        ],
        [("next", "gloo", 9), ("gloo", "wait")],
        {"x": M(30)},
        steps=[(0, 0, "first", "last")],
    )
    assert held(made) == {"compute": 20, "comm.transfer": 15, "idle.data": 6, "idle.host": 5}


@given(graphs())
def test_lines_close(made):
    done = replay(made)
    assert step_lines(done).sum() == done.step_times.sum()
