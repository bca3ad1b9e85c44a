"""A run as tasks and what each had to wait for: columns, never objects, and no time of the recording that says when.

A task starts when its lane is free and all its inputs are done. A lane runs its tasks in the order in which they stand,
and is free for the next one `gap` after a task has stopped. Edges say what else a task waits for. Tasks that share a
meeting stop together: its `transfer` begins when the last of them has started. Meetings on the same link take turns.

Recorded starts and stops are apart, in `MeasuredTimes`, to compare a replay with; a replay never reads them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Ns = npt.NDArray[np.int64]
Index = npt.NDArray[np.int32]
Small = npt.NDArray[np.int8]
Flags = npt.NDArray[np.bool_]

NONE: Final = -1
"""Where an index points nowhere."""


class TaskKind(IntEnum):
    """What a task is."""

    HOST = 0
    """Ops, and Python between them, on a thread of the host."""
    LAUNCH = 1
    """The call that puts work on a stream."""
    SYNC = 2
    """Returns when the device, or a collective on another thread, is done: its inputs are what it waits for."""
    DATA = 3
    """The training thread gets its next batch; what a worker has not done by then is an input."""
    KERNEL = 4
    """Computes: a kernel; on a rank without a device an op of the training thread."""
    COMM = 5
    """A rank's part in a collective or transfer."""
    COPY = 6
    """Copies or sets memory of the device."""
    MARK = 7
    """Takes no time: the edge of a step, or a point that others wait for. On a stream, how long it stood still for what
    was not recorded."""
    LOAD = 8
    """A loader's worker makes a batch."""


DEVICE_KINDS: Final = (TaskKind.KERNEL, TaskKind.COMM, TaskKind.COPY)


class LaneKind(IntEnum):
    """Who runs a lane's tasks."""

    HOST = 0
    STREAM = 1
    COMM_THREAD = 2
    """A thread of the host that runs collectives."""
    LOADER = 3


class Because(IntEnum):
    """Why an edge is there."""

    LAUNCH = 0
    """Work cannot start before it is launched."""
    SYNC = 1
    """The host waits for the device, or for a collective that runs on another thread."""
    STREAM = 2
    """A stream waits for another."""
    THREAD = 3
    """A thread waits for another: autograd's, a loader's worker, the one that enqueues a collective."""
    DATAFLOW = 4
    """Needs the result: a backward pass its forward, a stage the activations of the one before."""
    CHANGE = 5
    """Put there by a change."""


@dataclass(frozen=True, slots=True)
class Tasks:
    """One row a task, in the order of lanes and within a lane in the order in which it runs them.

    `line` is the line of the ledger (an index into `ledger.lines.LINES`) on which time stands while nothing but this
    task runs. `duration` of a task that meets others is what it takes beyond the meeting's transfer. `gap` is
    negative where the next one of the lane was recorded to start before this one stopped. `layer` and `name` are
    indices into the graph's words, `phase` one into `ledger.phases.PHASES`, `kernel_class` one into
    `facts.kernel_classes.CLASSES`; `step` is the number of the training step, NONE outside all; `event` the row of
    table `events`, NONE for what was never recorded.
    """

    lane: Index
    kind: Small
    line: Small
    duration: Ns
    gap: Ns
    meeting: Index
    step: Index
    phase: Small
    kernel_class: Small
    name: Index
    layer: Index
    event: Ns

    def __len__(self) -> int:
        return int(self.lane.size)

    def take(self, rows: npt.NDArray[Any]) -> Tasks:
        return Tasks(*(getattr(self, field.name)[rows] for field in fields(self)))

    def _replace(self, **columns: npt.NDArray[Any]) -> Tasks:
        return replace(self, **columns)


@dataclass(frozen=True, slots=True)
class Edges:
    """`dst` starts no earlier than `delay` after `src` stopped; where `after_start`, after it started."""

    src: Index
    dst: Index
    delay: Ns
    after_start: Flags
    because: Small

    def __len__(self) -> int:
        return int(self.src.size)

    def take(self, rows: npt.NDArray[Any]) -> Edges:
        return Edges(*(getattr(self, field.name)[rows] for field in fields(self)))


@dataclass(frozen=True, slots=True)
class TaskMeetings:
    """Collectives and transfers. Those on the same `link` (NONE: its own) take turns, in the order of rows.

    `transfer` is what it takes once all have arrived, alone on its link. `size` is as `predict.costs.times` counts it,
    NONE where it is not known; `op` and `group` are indices into the graph's words. `ranks` and `hosts` are those of
    the group, 0 where not known. A meeting is `whole` where every member was recorded: otherwise `transfer` holds what
    was waited for the missing ones.
    """

    transfer: Ns
    size: Ns
    op: Index
    group: Index
    ranks: Index
    hosts: Index
    link: Index
    whole: Flags

    def __len__(self) -> int:
        return int(self.transfer.size)

    def take(self, rows: npt.NDArray[Any]) -> TaskMeetings:
        return TaskMeetings(*(getattr(self, field.name)[rows] for field in fields(self)))


@dataclass(frozen=True, slots=True)
class Lanes:
    """`origin` is when a lane may begin, on the common clock, 0 at the start of the run: where the recording found it,
    for lanes whose first task nothing else holds back; 0 elsewhere. `name` is an index into the graph's words."""

    rank: Index
    kind: Small
    name: Index
    origin: Ns

    def __len__(self) -> int:
        return int(self.rank.size)


@dataclass(frozen=True, slots=True)
class StepEdges:
    """Steps of each rank in order. `first` and `last` are tasks that begin and end it: it runs from the start of one to
    the stop of the other. On a device both are NONE: a step runs from the first start of its device tasks to that of
    the next step where `joined`, else to the last stop of its own. `measured` is what the ledger says it took."""

    rank: Index
    number: Index
    first: Index
    last: Index
    joined: Flags
    measured: Ns

    def __len__(self) -> int:
        return int(self.rank.size)


@dataclass(frozen=True, slots=True)
class MeasuredTimes:
    """When each task started and stopped, on the common clock, 0 at the start of the run; NONE where never recorded."""

    start: Ns
    stop: Ns


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskGraph:
    """Immutable: a change makes another one. `words` are what `name`, `layer`, `op` and `group` stand for."""

    tasks: Tasks
    edges: Edges
    meetings: TaskMeetings
    lanes: Lanes
    steps: StepEdges
    measured: MeasuredTimes
    words: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def rank(self) -> Index:
        """Of each task."""
        rank: Index = self.lanes.rank[self.tasks.lane]
        return rank

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(np.unique(self.lanes.rank).tolist())

    @property
    def follows(self) -> Flags:
        """Tasks that have another before them on their lane."""
        lane = self.tasks.lane
        found = np.zeros(lane.size, np.bool_)
        found[1:] = lane[1:] == lane[:-1]
        return found

    def word(self, text: str) -> int:
        """Index of a word, NONE where the graph does not have it."""
        try:
            return self.words.index(text)
        except ValueError:
            return NONE

    def self_check(self) -> None:
        """Raises AssertionError where columns contradict each other; whether anything waits for itself only a replay
        tells, which refuses it."""
        n, m = len(self.tasks), len(self.meetings)
        for part in (self.tasks, self.edges, self.meetings, self.lanes, self.steps, self.measured):
            lengths = {getattr(part, field.name).size for field in fields(part)}
            assert len(lengths) == 1, f"{type(part).__name__} has columns of {sorted(lengths)} rows"
        tasks, edges = self.tasks, self.edges
        assert self.measured.start.size == n, "a task without a recorded time needs NONE"
        assert bool((np.diff(tasks.lane) >= 0).all()), "tasks are not in lane order"
        for what, index, size in (
            ("lane", tasks.lane, len(self.lanes)),
            ("meeting", tasks.meeting, m),
            ("name", tasks.name, len(self.words)),
            ("layer", tasks.layer, len(self.words)),
            ("edge's source", edges.src, n),
            ("edge's target", edges.dst, n),
            ("operation", self.meetings.op, len(self.words)),
            ("group", self.meetings.group, len(self.words)),
            ("first of a step", self.steps.first, n),
            ("last of a step", self.steps.last, n),
        ):
            assert not index.size or (index.min() >= NONE and index.max() < size), f"{what} is out of range"
        assert not len(edges) or min(edges.src.min(), edges.dst.min()) >= 0, "an edge without a source or target"
        assert not bool((tasks.duration < 0).any()), "a task with a negative duration"
        assert not bool((self.meetings.transfer < 0).any()), "a transfer with a negative duration"
        attended = np.bincount(tasks.meeting[tasks.meeting >= 0], minlength=m)
        assert not bool((attended == 0).any()), "a meeting without a task"
        alone = tasks.meeting[(tasks.kind == TaskKind.COMM)]
        assert not bool((alone < 0).any()), "communication without a meeting"
