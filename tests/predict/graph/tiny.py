"""Graphs by hand: lanes of tasks, edges between names, meetings by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.phases import OTHER
from lostflops.predict.graph.tasks import (
    NONE,
    Because,
    Edges,
    LaneKind,
    Lanes,
    MeasuredTimes,
    StepEdges,
    TaskGraph,
    TaskKind,
    TaskMeetings,
    Tasks,
)


@dataclass(frozen=True)
class T:
    """A task; `meets` names the meeting."""

    name: str
    duration: int = 0
    gap: int = 0
    kind: TaskKind = TaskKind.HOST
    meets: str = ""
    step: int = 0
    line: str = "idle.host"
    phase: int = OTHER
    kernel_class: int = 0
    layer: str = ""


@dataclass(frozen=True)
class L:
    """A lane."""

    rank: int
    kind: LaneKind
    tasks: Sequence[T]
    origin: int = 0
    name: str = "lane"


@dataclass(frozen=True)
class M:
    """A meeting."""

    transfer: int
    op: str = "all_reduce"
    size: int = 1_000_000
    group: str = "0@0-1"
    ranks: int = 2
    hosts: int = 1
    link: int = NONE


def graph(
    lanes: Sequence[L],
    edges: Sequence[tuple[str, str] | tuple[str, str, int] | tuple[str, str, int, bool]] = (),
    meetings: Mapping[str, M] | None = None,
    steps: Sequence[tuple[int, int, str, str]] = (),
    because: Because | Sequence[Because] = Because.SYNC,
) -> TaskGraph:
    """Names of tasks are unique over all lanes. `edges` are (from, to, delay, after start); `steps` are (rank, number,
    first, last), with "" for steps of a device, which are told by its tasks; `because` is for all edges or each."""
    met = dict(meetings or {})
    tasks = [(at, task) for at, lane in enumerate(lanes) for task in lane.tasks]
    texts: dict[str, int] = {}

    def word(text: str) -> int:
        return texts.setdefault(text, len(texts))

    place = {task.name: row for row, (_, task) in enumerate(tasks)}
    told = [(*edge, 0, False)[:4] if len(edge) == 2 else (*edge, False)[:4] for edge in edges]
    columns = Tasks(
        np.array([at for at, _ in tasks], np.int32),
        np.array([task.kind for _, task in tasks], np.int8),
        np.array([LINES.index(task.line) for _, task in tasks], np.int8),
        np.array([task.duration for _, task in tasks], np.int64),
        np.array([task.gap for _, task in tasks], np.int64),
        np.array([list(met).index(task.meets) if task.meets else NONE for _, task in tasks], np.int32),
        np.array([task.step for _, task in tasks], np.int32),
        np.array([task.phase for _, task in tasks], np.int8),
        np.array([task.kernel_class for _, task in tasks], np.int8),
        np.array([word(task.name) for _, task in tasks], np.int32),
        np.array([word(task.layer) if task.layer else NONE for _, task in tasks], np.int32),
        np.arange(len(tasks), dtype=np.int64),
    )
    ends = np.full(len(tasks), NONE, np.int64)
    made = TaskGraph(
        tasks=columns,
        edges=Edges(
            np.array([place[edge[0]] for edge in told], np.int32),
            np.array([place[edge[1]] for edge in told], np.int32),
            np.array([edge[2] for edge in told], np.int64),
            np.array([edge[3] for edge in told], np.bool_),
            np.broadcast_to(np.array(because, np.int8), (len(told),)),
        ),
        meetings=TaskMeetings(
            np.array([one.transfer for one in met.values()], np.int64),
            np.array([one.size for one in met.values()], np.int64),
            np.array([word(one.op) for one in met.values()], np.int32),
            np.array([word(one.group) for one in met.values()], np.int32),
            np.array([one.ranks for one in met.values()], np.int32),
            np.array([one.hosts for one in met.values()], np.int32),
            np.array([one.link for one in met.values()], np.int32),
            np.ones(len(met), np.bool_),
        ),
        lanes=Lanes(
            np.array([lane.rank for lane in lanes], np.int32),
            np.array([lane.kind for lane in lanes], np.int8),
            np.array([word(lane.name) for lane in lanes], np.int32),
            np.array([lane.origin for lane in lanes], np.int64),
        ),
        steps=StepEdges(
            np.array([rank for rank, *_ in steps], np.int32),
            np.array([number for _, number, *_ in steps], np.int32),
            np.array([place[first] if first else NONE for *_, first, _ in steps], np.int32),
            np.array([place[last] if last else NONE for *_, last in steps], np.int32),
            np.zeros(len(steps), np.bool_),
            np.zeros(len(steps), np.int64),
        ),
        measured=MeasuredTimes(ends, ends),
        words=tuple(texts),
    )
    made.self_check()
    return made


def starts(made: TaskGraph, times: np.ndarray) -> dict[str, int]:
    """Times by the names of tasks."""
    return {made.words[name]: int(time) for name, time in zip(made.tasks.name.tolist(), times, strict=True)}
