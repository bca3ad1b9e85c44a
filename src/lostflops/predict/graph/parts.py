"""One rank's part of a graph, as a builder makes it: tasks, edges and steps of a rank that knows of no other."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lostflops.predict.graph.tasks import Edges, LaneKind, Ns, TaskMeetings, Tasks


class RankNote(NamedTuple):
    """`said` has a place for the amount, which reads as `shown`."""

    said: str
    amount: float
    shown: str


class TaskLane(NamedTuple):
    """`origin` is a stamp of the rank's own clock, None where another task holds the lane's first one back."""

    kind: LaneKind
    name: str
    origin: int | None


@dataclass(frozen=True, slots=True)
class PartSteps:
    """As `tasks.StepEdges`, of one rank; tasks are numbered within the part."""

    number: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    last: npt.NDArray[np.int64]
    joined: npt.NDArray[np.bool_]
    measured: Ns


@dataclass(frozen=True, slots=True)
class GraphPart:
    """Tasks are in the order of lanes, numbered from 0; `meeting` is NONE everywhere: who met whom is found when parts
    are joined, by `event`. `start` and `stop` are the recorded ones, on the rank's own clock. A COMM task's `duration`
    is 0: what it took is read off `start` and `stop` of all members. `late` are COMM tasks that may have stopped
    earlier: the program found them done when it asked. `meets` has a key for each COMM task that no table knows: those
    of equal keys meet. `notes` hold for the run, `rank_notes` for this rank."""

    rank: int
    lanes: tuple[TaskLane, ...]
    tasks: Tasks
    edges: Edges
    steps: PartSteps
    start: Ns
    stop: Ns
    words: tuple[str, ...]
    notes: tuple[str, ...] = ()
    late: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    meets: Mapping[int, Hashable] = field(default_factory=dict)
    rank_notes: tuple[RankNote, ...] = ()


def no_edges() -> Edges:
    none = np.empty(0, np.int32)
    return Edges(none, none, np.empty(0, np.int64), np.empty(0, np.bool_), np.empty(0, np.int8))


def no_meetings() -> TaskMeetings:
    index, ns = np.empty(0, np.int32), np.empty(0, np.int64)
    return TaskMeetings(ns, ns, index, index, index, index, index, np.empty(0, np.bool_))
