"""Critical paths of graphs made by hand, and of random ones: longer tasks on the path make the end later, others do
not."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.predict.graph.tiny import L, M, T, graph

from lostflops.predict.graph.editing import retime_graph
from lostflops.predict.graph.path import Led, PathEnd, critical_paths, step_end
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import NONE, LaneKind, TaskKind


def told(made, path):
    """Name, start, stop, what of it ran, and how the path came there."""
    names = [made.words[made.tasks.name[task]] for task in path.task]
    led = [Led(value).name for value in path.led]
    return list(zip(names, path.start.tolist(), path.stop.tolist(), path.ran.tolist(), led, strict=True))


def last(done):
    return PathEnd(int(done.stop.argmax()), True)


def test_a_path_goes_over_launches_and_streams():
    made = graph(
        [
            L(0, LaneKind.HOST, [T("launch a", 2, 20, TaskKind.LAUNCH), T("launch b", 2, 0, TaskKind.LAUNCH)]),
            L(0, LaneKind.STREAM, [T("a", 10, 1, TaskKind.KERNEL), T("b", 5, 0, TaskKind.KERNEL)]),
        ],
        [("launch a", "a", 4, True), ("launch b", "b", 4, True)],
    )
    done = replay(made)
    (path,) = critical_paths(done, [last(done)])
    assert told(made, path) == [
        ("launch a", 0, 22, 2, "ORIGIN"),
        ("launch b", 22, 26, 2, "LANE"),
        ("b", 26, 31, 5, "SYNC"),
    ]


def test_a_path_changes_rank_to_who_arrives_last():
    made = graph(
        [
            L(0, LaneKind.STREAM, [T("a0", 10, 0, TaskKind.KERNEL), T("c0", 0, 2, TaskKind.COMM, "x"), T("b0", 9)]),
            L(1, LaneKind.STREAM, [T("a1", 30, 0, TaskKind.KERNEL), T("c1", 0, 0, TaskKind.COMM, "x"), T("b1", 1)]),
        ],
        meetings={"x": M(7)},
    )
    done = replay(made)
    (path,) = critical_paths(done, [last(done)])
    assert told(made, path) == [
        ("a1", 0, 30, 30, "ORIGIN"),
        ("c1", 30, 30, 0, "LANE"),
        ("c0", 30, 39, 7, "MEETING"),
        ("b0", 39, 48, 9, "LANE"),
    ]


def test_a_path_goes_through_a_link_that_is_taken():
    made = graph(
        [
            L(0, LaneKind.STREAM, [T("x", 3, 0, TaskKind.COMM, "x")]),
            L(0, LaneKind.STREAM, [T("y", 0, 0, TaskKind.COMM, "y")]),
        ],
        meetings={"x": M(7, link=0), "y": M(5, link=0)},
    )
    done = replay(made)
    (path,) = critical_paths(done, [PathEnd(1, True)])
    assert told(made, path) == [("x", 0, 7, 7, "ORIGIN"), ("y", 7, 12, 5, "LINK")]


def test_a_path_that_reaches_back_in_time_holds_nothing_twice():
    made = graph([L(0, LaneKind.HOST, [T("a", 10, -4), T("b", 10)])])
    done = replay(made)
    (path,) = critical_paths(done, [last(done)])
    assert told(made, path) == [("a", 0, 6, 6, "ORIGIN"), ("b", 6, 16, 10, "LANE")]


def test_the_path_of_a_step_ends_at_its_start():
    made = graph(
        [L(0, LaneKind.STREAM, [T(f"k{i}", 10, 2, TaskKind.KERNEL, step=i // 2) for i in range(4)])],
        steps=[(0, 0, "", ""), (0, 1, "", "")],
    )
    done = replay(made)
    first, second = critical_paths(done, [step_end(done, 0), step_end(done, 1)])
    assert told(made, first)[0][:3] == ("k0", 0, 12)
    assert (first.length, second.length) == tuple(done.step_times.tolist())
    assert told(made, second) == [("k2", 24, 36, 10, "ORIGIN"), ("k3", 36, 46, 10, "LANE")]


@st.composite
def graphs(draw):
    """Without circles: edges and meetings only go to later places of lanes."""
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    number = st.integers(0, 20)
    levels = {level for level in range(6) if draw(st.booleans())}
    lanes = [
        L(
            rank,
            LaneKind.STREAM,
            [
                T(f"{rank}.{i}", draw(number), draw(st.integers(-3, 20)), TaskKind.COMM, str(i))
                if i in levels
                else T(f"{rank}.{i}", draw(number), draw(st.integers(-3, 20)), TaskKind.KERNEL)
                for i in range(size)
            ],
            origin=draw(number),
        )
        for rank, size in enumerate(sizes)
    ]
    link = draw(st.sampled_from([0, NONE]))
    met = {str(level): M(draw(number), link=link) for level in sorted(levels) if level < max(sizes)}
    places = [(rank, i) for rank, size in enumerate(sizes) for i in range(size)]
    pairs = draw(st.lists(st.tuples(st.sampled_from(places), st.sampled_from(places)), max_size=10))
    edges = [
        (f"{a[0]}.{a[1]}", f"{b[0]}.{b[1]}", draw(st.integers(-3, 20)), draw(st.booleans()))
        for a, b in pairs
        if a[1] < b[1]
    ]
    return graph(lanes, edges, met)


@given(graphs())
def test_the_path_is_what_the_end_hangs_on(made):
    done = replay(made)
    end = last(done)
    (path,) = critical_paths(done, [end])
    assert path.stop[-1] == done.stop[end.task]
    assert (path.start[1:] == path.stop[:-1]).all()
    assert path.length == path.stop[-1] - path.start[0]
    assert ((path.ran >= 0) & (path.ran <= path.stop - path.start)).all()
    tasks = made.tasks
    for task in path.task[(path.ran > 0) & (path.stop - path.start > 0)].tolist():
        meeting, duration, transfer = tasks.meeting[task], tasks.duration.copy(), made.meetings.transfer.copy()
        if meeting >= 0:
            transfer[meeting] += 5
        else:
            duration[task] += 5
        later = replay(retime_graph(made, duration=duration, transfer=transfer))
        if meeting >= 0 or not _left_at_start(made, path, task):
            assert later.stop[end.task] >= done.stop[end.task] + 5
    off = np.setdiff1d(np.arange(len(tasks)), path.task)
    shorter = tasks.duration.copy()
    shorter[off] = 0
    assert replay(retime_graph(made, duration=shorter)).stop[end.task] == done.stop[end.task]


def _left_at_start(made, path, task):
    """A path that leaves a task at its start does not hang on what it takes."""
    edges = made.edges
    return bool(np.isin(edges.dst[(edges.src == task) & edges.after_start], path.task).any())
