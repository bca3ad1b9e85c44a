"""One rank's part of a graph, as a builder makes it: tasks, edges and steps, without reference to other ranks."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lostflops.predict.graph.tasks import Edges, LaneKind, Ns, TaskMeetings, Tasks


class RankNote(NamedTuple):
    """A note about one rank."""

    said: str
    """Text with a place for the amount."""
    amount: float
    shown: str
    """The amount as text."""


class TaskLane(NamedTuple):
    """One lane of a rank."""

    kind: LaneKind
    name: str
    origin: int | None
    """When the lane begins, on the rank's own clock; None if another task holds back its first task."""


@dataclass(frozen=True, slots=True)
class PartSteps:
    """Steps of one rank, as in `tasks.StepEdges`, with tasks numbered within the part."""

    number: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    last: npt.NDArray[np.int64]
    joined: npt.NDArray[np.bool_]
    measured: Ns


@dataclass(frozen=True, slots=True)
class GraphPart:
    """One rank's part of a graph, before it is joined with others."""

    rank: int
    lanes: tuple[TaskLane, ...]
    tasks: Tasks
    """In the order of lanes, numbered from 0. `meeting` is NONE everywhere: meetings are matched by `event` when parts
    are joined. `duration` of a COMM task is 0: its time is read from `start` and `stop` of all members."""
    edges: Edges
    steps: PartSteps
    start: Ns
    """Recorded start of each task, on the rank's own clock."""
    stop: Ns
    """Recorded stop of each task, on the rank's own clock."""
    words: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """Notes about the run."""
    late: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """COMM tasks that may have stopped earlier: the program found them done when it asked."""
    meets: Mapping[int, Hashable] = field(default_factory=dict)
    """Key of each COMM task that is in no table: tasks with equal keys meet."""
    rank_notes: tuple[RankNote, ...] = ()
    """Notes about this rank."""


def no_edges() -> Edges:
    none = np.empty(0, np.int32)
    return Edges(none, none, np.empty(0, np.int64), np.empty(0, np.bool_), np.empty(0, np.int8))


def no_meetings() -> TaskMeetings:
    index, ns = np.empty(0, np.int32), np.empty(0, np.int64)
    return TaskMeetings(ns, ns, index, index, index, index, index, np.empty(0, np.bool_))
