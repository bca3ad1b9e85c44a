"""What each rule makes of a trace of a few events: who waits for whom, and what is nobody's fault."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tests.cli.mini_traces import (
    AUTOGRAD,
    HOST,
    LOADER,
    THREAD,
    Event,
    copy,
    event,
    kernel,
    launch,
    make_run,
    note,
    op,
    step,
)

from lostflops import Run
from lostflops.predict.graph.build import build
from lostflops.predict.graph.editing import retime_graph
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import Because, LaneKind, TaskGraph, TaskKind


def made(folder: Path, *events: Event) -> TaskGraph:
    with Run.open(make_run(folder, events)) as run:
        graph = build(run)
    done = replay(graph)
    assert np.abs(done.start - graph.measured.start).max() <= 1_000
    return graph


def call(name: str, ts: float, dur: float, correlation: int = -1, thread: int = THREAD) -> Event:
    return event("cuda_runtime", name, ts, dur, (HOST, thread), correlation=correlation)


def task(graph: TaskGraph, name: str, kind: TaskKind) -> int:
    (found,) = np.flatnonzero((graph.tasks.name == graph.word(name)) & (graph.tasks.kind == kind))
    return int(found)


def waits(graph: TaskGraph, because: Because) -> list[tuple[str, str]]:
    edges = graph.edges.take(graph.edges.because == because)
    names = [graph.words[name] for name in graph.tasks.name.tolist()]
    return sorted((names[src], names[dst]) for src, dst in zip(edges.src.tolist(), edges.dst.tolist(), strict=True))


def without(graph: TaskGraph, name: str) -> int:
    """When the last task stops if all of this name took no time."""
    duration = np.where(graph.tasks.name == graph.word(name), 0, graph.tasks.duration)
    return int(replay(retime_graph(graph, duration=duration)).stop.max())


def test_a_launch_never_holds_queueing(tmp_path: Path) -> None:
    graph = made(
        tmp_path,
        step(1, 0, 100),
        *(launch(i, 10 + 4 * i) for i in range(3)),
        *(kernel(i, 15 + 50 * i, 49, f"k{i}") for i in range(3)),
    )
    assert graph.edges.delay[graph.edges.because == Because.LAUNCH].tolist() == [5_000] * 3
    assert graph.tasks.gap[graph.lanes.kind[graph.tasks.lane] == LaneKind.STREAM].tolist() == [1_000, 1_000, 0]


def test_a_synchronized_stream_is_the_one_that_ended_at_the_return(tmp_path: Path) -> None:
    graph = made(
        tmp_path,
        step(1, 0, 700),
        launch(1, 10),
        launch(2, 20),
        call("cudaStreamSynchronize", 30, 290, 9),
        launch(3, 330),
        kernel(1, 15, 300, "waited for"),
        kernel(2, 25, 900, "runs on", stream=20),
        kernel(3, 335, 100, "next"),
    )
    assert waits(graph, Because.SYNC) == [("waited for", "cudaStreamSynchronize")]
    at = task(graph, "cudaStreamSynchronize", TaskKind.SYNC)
    assert graph.tasks.duration[at] == 5_000
    assert graph.tasks.gap[at - 1] == 8_000


def test_a_copy_from_pageable_memory_waits_for_its_turn(tmp_path: Path) -> None:
    graph = made(
        tmp_path,
        step(1, 0, 2000),
        launch(1, 10),
        call("cudaMemcpyAsync", 20, 1010, 2),
        launch(3, 1040),
        kernel(1, 15, 985, "before"),
        copy(2, 1001, 40, "Memcpy HtoD (Pageable -> Device)"),
        kernel(3, 1045, 10, "after"),
    )
    assert waits(graph, Because.SYNC) == [("Memcpy HtoD (Pageable -> Device)", "cudaMemcpyAsync")]
    assert graph.tasks.duration[task(graph, "cudaMemcpyAsync", TaskKind.SYNC)] == 29_000
    assert without(graph, "before") < 100_000


def test_a_launch_into_a_full_queue_waits_for_room(tmp_path: Path) -> None:
    queued = range(600)
    graph = made(
        tmp_path,
        step(1, 0, 100_000),
        *(launch(i, 10 + 3 * i) for i in queued),
        call("cudaLaunchKernel", 1_900, 822, 9_999),
        *(kernel(i, 20 + 100 * i, 99, "short") for i in queued),
        kernel(9_999, 60_020, 10, "last"),
    )
    assert waits(graph, Because.SYNC) == [("short", "cudaLaunchKernel")]
    assert graph.tasks.duration[graph.tasks.kind == TaskKind.LAUNCH].max() < 100_000


def test_a_queued_kernel_waits_for_what_ended_before_it_on_another_stream(tmp_path: Path) -> None:
    graph = made(
        tmp_path,
        step(1, 0, 700),
        launch(1, 10),
        launch(2, 20),
        launch(3, 30),
        kernel(1, 15, 10, "first"),
        kernel(2, 25, 400, "beside", stream=20),
        kernel(3, 428, 100, "second"),
    )
    assert ("beside", "second") in waits(graph, Because.STREAM)
    assert without(graph, "beside") < 200_000


def test_what_held_a_kernel_and_was_not_recorded_is_a_task_and_is_told(tmp_path: Path) -> None:
    graph = made(
        tmp_path,
        step(1, 0, 700),
        launch(1, 10),
        launch(2, 14),
        kernel(1, 15, 100, "first"),
        kernel(2, 3_115, 100, "second"),
    )
    at = task(graph, "wait for something not recorded", TaskKind.MARK)
    assert 2_990_000 <= graph.tasks.duration[at] <= 3_000_000
    assert "waited 3.0 ms on the device for something that was not recorded" in graph.notes[0]


def test_a_batch_is_one_task_and_python_between_calls_another(tmp_path: Path) -> None:
    graph = made(
        tmp_path,
        step(1, 0, 700),
        note(LOADER, 10, 100),
        op("aten::stack", 20, 30),
        op("aten::mm", 110, 20),
        launch(1, 115),
        launch(2, 400),
        kernel(1, 120, 5, "first"),
        kernel(2, 405, 5, "second"),
    )
    host = graph.tasks.take(graph.lanes.kind[graph.tasks.lane] == LaneKind.HOST)
    names = [(graph.words[name], kind) for name, kind in zip(host.name.tolist(), host.kind.tolist(), strict=True)]
    assert names == [
        (LOADER, TaskKind.DATA),
        ("cudaLaunchKernel", TaskKind.LAUNCH),
        ("python", TaskKind.HOST),
        ("cudaLaunchKernel", TaskKind.LAUNCH),
    ]
    assert host.duration.tolist() == [100_000, 2_000, 283_000, 2_000]


def test_threads_that_take_turns_are_one_lane_and_others_are_not(tmp_path: Path) -> None:
    turns = made(
        tmp_path / "turns",
        step(1, 0, 700),
        op("aten::mm", 10, 20),
        launch(1, 40),
        launch(2, 100, AUTOGRAD),
        kernel(1, 45, 5, "first"),
        kernel(2, 105, 5, "second"),
    )
    assert (turns.lanes.kind == LaneKind.HOST).sum() == 1
    beside = made(
        tmp_path / "beside",
        step(1, 0, 700),
        op("aten::mm", 10, 200),
        launch(1, 215),
        launch(2, 100, AUTOGRAD),
        kernel(1, 220, 5, "first"),
        kernel(2, 105, 5, "second", stream=20),
    )
    assert (beside.lanes.kind == LaneKind.HOST).sum() == 2
