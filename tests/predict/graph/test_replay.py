"""Replay against hand-made graphs and a naive oracle; both paths give the same."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.predict.graph.tiny import L, M, T, graph, starts

from lostflops.predict.graph import longest as longest_module
from lostflops.predict.graph.knots import find_paths
from lostflops.predict.graph.longest import _compile_work_off, longest
from lostflops.predict.graph.network import PathNetwork
from lostflops.predict.graph.replay import Circular, replay
from lostflops.predict.graph.tasks import LaneKind, TaskKind


def test_a_kernel_waits_for_its_launch_and_its_stream():
    made = graph(
        [
            L(0, LaneKind.HOST, [T("launch a", 2, 1, TaskKind.LAUNCH), T("launch b", 2, 0, TaskKind.LAUNCH)]),
            L(0, LaneKind.STREAM, [T("a", 10, 1, TaskKind.KERNEL), T("b", 5, 0, TaskKind.KERNEL)]),
        ],
        [("launch a", "a", 4, True), ("launch b", "b", 4, True)],
    )
    assert starts(made, replay(made).start) == {"launch a": 0, "launch b": 3, "a": 4, "b": 15}


def test_a_collective_ends_everywhere_after_the_last_arrival():
    made = graph(
        [
            L(0, LaneKind.STREAM, [T("a0", 10, 0, TaskKind.KERNEL), T("c0", 0, 2, TaskKind.COMM, "x"), T("b0", 1)]),
            L(1, LaneKind.STREAM, [T("a1", 30, 0, TaskKind.KERNEL), T("c1", 3, 0, TaskKind.COMM, "x"), T("b1", 1)]),
        ],
        meetings={"x": M(7)},
    )
    done = replay(made)
    assert starts(made, done.start) == {"a0": 0, "c0": 10, "b0": 39, "a1": 0, "c1": 30, "b1": 40}
    assert done.met.tolist() == [30]


def test_meetings_on_a_link_take_turns():
    made = graph(
        [
            L(0, LaneKind.STREAM, [T("x", 0, 0, TaskKind.COMM, "x")]),
            L(0, LaneKind.STREAM, [T("y", 0, 0, TaskKind.COMM, "y")]),
        ],
        meetings={"x": M(7, link=0), "y": M(5, link=0)},
    )
    assert starts(made, replay(made).stop) == {"x": 7, "y": 12}


def test_what_waits_for_itself_is_refused_and_named():
    made = graph([L(0, LaneKind.HOST, [T("a", 1), T("b", 1)])], [("b", "a")])
    with pytest.raises(Circular, match="2 of 2 tasks wait for each other, starting with 'a' on rank 0"):
        replay(made)


@st.composite
def networks(draw):
    """Random ones without circles: edges and meetings only go from earlier lanes to later places."""
    lanes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    n = sum(lanes)
    number = st.integers(0, 50)
    follows = np.concatenate([[False] + [True] * (size - 1) for size in lanes])
    depth = np.concatenate([np.arange(size) for size in lanes])
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=12))
    pairs = [(a, b) for a, b in pairs if depth[a] < depth[b]]
    meeting = np.full(n, -1)
    meetings = 0
    for level in range(max(lanes)):
        if draw(st.booleans()):
            meeting[depth == level] = meetings
            meetings += 1
    turn = np.full(meetings, -1)
    if meetings > 1 and draw(st.booleans()):
        turn[:-1] = np.arange(1, meetings)

    def column(count):
        return np.array(draw(st.lists(number, min_size=count, max_size=count)), np.int64)

    return PathNetwork(
        origin=np.where(follows, 0, column(n)),
        duration=column(n),
        gap=column(n),
        follows=follows,
        meeting=meeting.astype(np.int32),
        transfer=column(meetings),
        turn=turn.astype(np.int32),
        src=np.array([a for a, _ in pairs], np.int32),
        dst=np.array([b for _, b in pairs], np.int32),
        delay=column(len(pairs)),
        after_start=np.array([draw(st.booleans()) for _ in pairs], np.bool_),
    )


def relaxed(net):
    """Starts by going over all rules until nothing changes."""
    n = net.origin.size
    start = net.origin.copy()
    met = np.zeros(net.transfer.size, np.int64)
    while True:
        before = start.copy(), met.copy()
        for task in range(n):
            here = net.meeting[task]
            if here >= 0:
                met[here] = max(met[here], start[task])
        for here, then in enumerate(net.turn):
            if then >= 0:
                met[then] = max(met[then], met[here] + net.transfer[here])
        ends = np.where(net.meeting >= 0, (met + net.transfer)[net.meeting] if met.size else 0, start) + net.duration
        for task in range(1, n):
            if net.follows[task]:
                start[task] = max(start[task], ends[task - 1] + net.gap[task - 1])
        for a, b, delay, early in zip(net.src, net.dst, net.delay, net.after_start, strict=True):
            start[b] = max(start[b], (start[a] if early else ends[a]) + delay)
        if (start == before[0]).all() and (met == before[1]).all():
            return start, ends, met


def test_nowhere_to_keep_what_was_compiled_is_no_reason_to_fail(monkeypatch):
    """As in a container that is read-only."""
    caching = pytest.importorskip("numba.core.caching")

    def refuse(_):
        raise OSError("read-only")

    for locator in caching.FunctionCache._impl_class._locator_classes:
        monkeypatch.setattr(locator, "ensure_cache_path", refuse)
    assert _compile_work_off.__wrapped__() is not None


@settings(deadline=None)  # the first one is compiled
@given(networks())
def test_all_ways_equal_a_naive_one(net):
    start, stop, met = relaxed(net)
    ways = [longest(net, compiled=compiled) for compiled in ((False, True) if find_spec("numba") else (False,))]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(longest_module, "find_paths", lambda _: None)
        ways.append(longest(net, compiled=False))
    for found in ways:
        assert not found.waiting.size
        assert found.start.tolist() == start.tolist()
        assert found.stop.tolist() == stop.tolist()
        assert found.met.tolist() == met.tolist()


def test_a_time_before_zero_is_left_to_the_loop_over_all_tasks():
    """A knot follows a task that would start at -3: it starts at 0, and the knot at 5."""
    net = network([2, 5, 1], gap=[-5, 0, 0], edges=[(0, 2, 0)])
    assert find_paths(net) is None
    assert longest(net, compiled=False).start.tolist() == [0, 0, 5]


def test_numba_is_loaded_after_many_tasks(monkeypatch):
    """Loading takes longer than a few replays."""

    def load():
        raise AssertionError("numba was loaded")

    monkeypatch.setattr(longest_module, "_compile_work_off", load)
    monkeypatch.setattr(longest_module, "_Replay", type("Replay", (), {"tasks": 0}))
    monkeypatch.setattr(longest_module, "WORTH_LOADING", 5)
    net = network([2, 5, 1])
    assert longest(net).stop.tolist() == [2, 7, 8]
    with pytest.raises(AssertionError, match="numba was loaded"):
        longest(net)


def network(duration, gap=(0, 0, 0), edges=()):
    """Return a network of one lane."""
    n = len(duration)
    src, dst, delay = (np.array([edge[part] for edge in edges], np.int64) for part in range(3))
    return PathNetwork(
        origin=np.zeros(n, np.int64),
        duration=np.array(duration, np.int64),
        gap=np.array(gap, np.int64),
        follows=np.arange(n) > 0,
        meeting=np.full(n, -1, np.int32),
        transfer=np.empty(0, np.int64),
        turn=np.empty(0, np.int32),
        src=src.astype(np.int32),
        dst=dst.astype(np.int32),
        delay=delay,
        after_start=np.zeros(len(edges), np.bool_),
    )
