"""data, sync, launch: what the host makes the device wait for."""

from __future__ import annotations

import pytest
from tests.predict.graph.tiny import L, T, graph, starts

from lostflops.account.ledger.phases import DATA
from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import Because, LaneKind, TaskKind
from lostflops.predict.whatif.change import Facts
from lostflops.predict.whatif.changes import data, launch, sync

FACTS = Facts(times=None)


def loading(loads, work=10, name="enumerate(DataLoader)#_SingleProcessDataLoaderIter"):
    """A thread that loads and works, step by step, with an op inside of the loader."""
    tasks = [
        task
        for step, load in enumerate(loads)
        for task in (
            T(f"begin {step}", kind=TaskKind.MARK, step=step),
            T(f"{name} {step}", load - 3, 1, TaskKind.DATA, step=step, line="idle.data"),
            T(f"collate {step}", 2, 1, phase=DATA, step=step, line="idle.data"),
            T(f"work {step}", work, 0, TaskKind.KERNEL, step=step),
            T(f"end {step}", kind=TaskKind.MARK, step=step),
        )
    ]
    return graph([L(0, LaneKind.HOST, tasks)], steps=[(0, s, f"begin {s}", f"end {s}") for s in range(len(loads))])


def test_a_batch_that_is_ready_takes_no_time():
    made = loading([20, 30])
    assert replay(made).step_times.tolist() == [31, 41]
    assert replay(data.CHANGE.apply(made, "fixed", FACTS).graph).step_times.tolist() == [11, 11]


def test_one_worker_loads_beside_the_work():
    edited = data.CHANGE.apply(loading([30] * 6), "1", FACTS).graph
    edited.self_check()
    assert replay(edited).step_times.tolist() == [30] * 6


def test_workers_load_side_by_side():
    assert replay(data.CHANGE.apply(loading([32] * 6), "2", FACTS).graph).step_times.tolist() == [16] * 6
    assert replay(data.CHANGE.apply(loading([30] * 6), "4", FACTS).graph).step_times.tolist() == [11] * 6


def test_what_workers_take_is_not_known():
    made = loading([30] * 3, name="enumerate(DataLoader)#_MultiProcessingDataLoaderIter")
    for value in ("4", "2x"):
        with pytest.raises(NotApplicable, match="data=fixed gives the upper limit"):
            data.CHANGE.apply(made, value, FACTS)
    assert replay(data.CHANGE.apply(made, "fixed", FACTS).graph).step_times.tolist() == [38, 38, 38]


def test_times_as_many_workers():
    pairs = [(T(f"get {i}", 1, 0, TaskKind.DATA, step=i, phase=DATA), T(f"work {i}", 10, step=i)) for i in range(4)]
    tasks = [task for pair in pairs for task in pair]
    loads = [T(f"load {i}", 40, 0, TaskKind.LOAD, step=i) for i in range(4)]
    made = graph(
        [L(0, LaneKind.HOST, tasks), L(0, LaneKind.LOADER, loads)],
        [(f"load {i}", f"get {i}") for i in range(4)],
        because=Because.THREAD,
    )
    assert replay(made).start[:8:2].tolist() == [40, 80, 120, 160]
    assert replay(data.CHANGE.apply(made, "2x", FACTS).graph).start[:8:2].tolist() == [20, 40, 60, 80]
    assert replay(data.CHANGE.apply(made, "8x", FACTS).graph).start[:8:2].tolist() == [5, 16, 27, 38]
    assert replay(data.CHANGE.apply(made, "fixed", FACTS).graph).start[:8:2].tolist() == [0, 11, 22, 33]
    with pytest.raises(NotApplicable, match="give a number of workers"):
        data.CHANGE.apply(loading([30, 30]), "2x", FACTS)


def test_python_before_a_batch_is_asked_for_stays():
    tasks = [
        T("begin", kind=TaskKind.MARK, step=0),
        T("log", 50, 0, phase=DATA, step=0, line="idle.python"),
        T("get", 20, 0, TaskKind.DATA, step=0, phase=DATA, line="idle.data"),
        T("work", 10, 0, TaskKind.KERNEL, step=0),
        T("end", kind=TaskKind.MARK, step=0),
    ]
    made = graph([L(0, LaneKind.HOST, tasks)], steps=[(0, 0, "begin", "end")])
    assert replay(data.CHANGE.apply(made, "fixed", FACTS).graph).step_times.tolist() == [60]


def test_nothing_is_loaded():
    with pytest.raises(NotApplicable, match="no wait for a batch"):
        data.CHANGE.apply(graph([L(0, LaneKind.HOST, [T("op", 1)])]), "fixed", FACTS)


def launched():
    """Two kernels with a sync between them, dispatched in 5 each."""
    return graph(
        [
            L(
                0,
                LaneKind.HOST,
                [
                    T("launch a", 3, 2, TaskKind.LAUNCH),
                    T("item", 4, 2, TaskKind.SYNC, line="idle.sync"),
                    T("op", 7, 1),
                    T("launch b", 3, 2, TaskKind.LAUNCH),
                    T("python", 50, 0, line="idle.python"),
                    T("launch c", 3, 0, TaskKind.LAUNCH),
                ],
            ),
            L(0, LaneKind.STREAM, [T(name, 10, 0, TaskKind.KERNEL, line="compute") for name in "abc"]),
        ],
        [("launch a", "a", 1, True), ("launch b", "b", 1, True), ("launch c", "c", 1, True), ("a", "item", 1)],
        steps=[(0, 0, "", "")],
        because=[Because.LAUNCH] * 3 + [Because.SYNC],
    )


def test_without_syncs_the_host_runs_ahead():
    made = launched()
    assert starts(made, replay(made).start)["b"] == 1 + 10 + 1 + 4 + 2 + 7 + 1 + 1
    edited = sync.CHANGE.apply(made, "removed", FACTS).graph
    assert starts(edited, replay(edited).start)["b"] == 3 + 2 + 0 + 2 + 7 + 1 + 1


def test_no_sync():
    with pytest.raises(NotApplicable, match="the host never waits for the device in a step"):
        sync.CHANGE.apply(graph([L(0, LaneKind.HOST, [T("op", 1)])]), "removed", FACTS)


def test_launches_are_free_but_python_and_syncs_stay():
    made = launched()
    edited = launch.CHANGE.apply(made, "free", FACTS).graph
    found = starts(edited, replay(edited).start)
    assert found["a"] == 1
    assert found["item"] == 12
    assert found["b"] == 12 + 4
    assert found["c"] == 12 + 4 + 2 + 50


def test_nothing_is_launched():
    with pytest.raises(NotApplicable, match="nothing is launched"):
        launch.CHANGE.apply(graph([L(0, LaneKind.HOST, [T("op", 1)])]), "free", FACTS)
