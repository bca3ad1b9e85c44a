"""python: what the host does between ops, by hand."""

from __future__ import annotations

import pytest
from tests.predict.graph.tiny import L, M, T, graph, starts

from lostflops.core.errors import NotApplicable, UsageError
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import Because, LaneKind, TaskKind
from lostflops.predict.whatif.change import Facts
from lostflops.predict.whatif.changes import python

FACTS = Facts(times=None)


def on_thread():
    """Two ranks that compute, log and meet; rank 1 logs longer."""
    lanes, edges, steps = [], [], []
    for rank, logging in enumerate((20, 60)):
        tasks = [
            T(f"begin {rank}", kind=TaskKind.MARK, line="idle.python"),
            T(f"work {rank}", 100, kind=TaskKind.KERNEL, line="compute"),
            T(f"python {rank}", logging, line="idle.python"),
            T(f"op {rank}", 10, line="idle.host"),
            T(f"wait {rank}", kind=TaskKind.SYNC, line="comm.wait"),
            T(f"end {rank}", kind=TaskKind.MARK, line="idle.python"),
        ]
        lanes += [
            L(rank, LaneKind.HOST, tasks),
            L(rank, LaneKind.COMM_THREAD, [T(f"reduce {rank}", kind=TaskKind.COMM, meets="m", line="comm.transfer")]),
        ]
        edges += [(f"op {rank}", f"reduce {rank}"), (f"reduce {rank}", f"wait {rank}")]
        steps.append((rank, 0, f"begin {rank}", f"end {rank}"))
    return graph(lanes, edges, {"m": M(5)}, steps)


def on_device(*stretches):
    """A kernel before and a kernel behind Python of a host."""
    tasks = [
        T("launch a", 3, 0, TaskKind.LAUNCH),
        *(T(f"python {at}", ns, line="idle.python") for at, ns in enumerate(stretches)),
        T("launch b", 3, 0, TaskKind.LAUNCH),
    ]
    return graph(
        [
            L(0, LaneKind.HOST, tasks),
            L(0, LaneKind.STREAM, [T(name, 10, 0, TaskKind.KERNEL, line="compute") for name in "ab"]),
        ],
        [("launch a", "a", 1, True), ("launch b", "b", 1, True)],
        steps=[(0, 0, "", "")],
        because=Because.LAUNCH,
    )


@pytest.mark.parametrize(("value", "step"), [("removed", 115), ("0.5x", 145), ("1x", 175), ("2x", 235)])
def test_the_slowest_rank_decides(value, step):
    made = on_thread()
    assert replay(made).mean_step == 175
    edited = python.CHANGE.apply(made, value, FACTS).graph
    edited.self_check()
    assert replay(edited).mean_step == step


def test_what_the_device_hides_is_no_gain():
    made = on_device(7)
    assert starts(made, replay(made).start)["b"] == 11
    edited = python.CHANGE.apply(made, "removed", FACTS).graph
    assert starts(edited, replay(edited).start)["b"] == 11


def test_what_it_does_not_hide_is():
    edited = python.CHANGE.apply(on_device(30, 50), "0.5x", FACTS).graph
    assert starts(edited, replay(edited).start)["b"] == 3 + 15 + 25 + 1


def test_who_waited_for_others_keeps_that():
    lanes = [
        L(rank, LaneKind.HOST, [T(f"work {rank}", 10 * rank), T(f"met {rank}", 0, meets="m", line="idle.python")])
        for rank in (0, 1)
    ]
    with pytest.raises(NotApplicable, match="Python code between ops takes too little time"):
        python.CHANGE.apply(graph(lanes, meetings={"m": M(5)}), "removed", FACTS)


def test_values():
    with pytest.raises(UsageError, match="give a factor"):
        python.CHANGE.apply(on_device(30), "most", FACTS)
