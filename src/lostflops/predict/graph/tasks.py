"""A run as tasks and their dependencies, in columns instead of objects, without the recorded start and stop times.

A task starts when its lane is free and all its inputs are done. A lane runs its tasks in order, and is free for the
next one `gap` after a task has stopped. Edges are the other inputs of a task. The `transfer` of a meeting begins when
the last of its tasks has started; each of them stops its own `duration` after the transfer. Meetings on the same link
take turns.

Recorded starts and stops are separate, in `MeasuredTimes`, to compare a replay with; a replay never reads them.
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
"""An index that points to nothing."""


class TaskKind(IntEnum):
    """Kind of a task."""

    HOST = 0
    """Innermost ops on a thread of the host, and Python between them (line `idle.python`); the time of the ops around
    them is in `Tasks.gap`."""
    LAUNCH = 1
    """The call that puts work on a stream."""
    SYNC = 2
    """Returns when the device, or a collective on another thread, is done: its inputs are what it waits for."""
    DATA = 3
    """The training thread gets its next batch; a batch that its worker has not finished by then is an input."""
    KERNEL = 4
    """Computes: a kernel; on a rank without a device an op of the training thread."""
    COMM = 5
    """A rank's part in a collective or transfer."""
    COPY = 6
    """Copies or sets memory of the device."""
    MARK = 7
    """Takes no time: the edge of a step, or a point that others wait for. On a stream, a wait for something that was
    not recorded."""
    LOAD = 8
    """All workers of a loader together make a batch; inferred from waits, on ranks without a device only."""


DEVICE_KINDS: Final = (TaskKind.KERNEL, TaskKind.COMM, TaskKind.COPY)


class LaneKind(IntEnum):
    """Kind of thread or queue that runs a lane's tasks."""

    HOST = 0
    STREAM = 1
    COMM_THREAD = 2
    """A thread of the host that runs collectives."""
    LOADER = 3


class Because(IntEnum):
    """Reason for an edge."""

    LAUNCH = 0
    """Work cannot start before it is launched."""
    SYNC = 1
    """The host waits for the device, or for a collective that runs on another thread."""
    STREAM = 2
    """A stream waits for another."""
    THREAD = 3
    """A thread waits for another: autograd's, a loader's worker, the one that enqueues a collective."""
    DATAFLOW = 4
    """A task needs the result: a backward pass that of its forward pass, a stage the activations of the one before."""
    CHANGE = 5
    """Put there by a change."""


@dataclass(frozen=True, slots=True)
class Tasks:
    """Tasks, one row each, in the order of lanes and within a lane in the order in which it runs them."""

    lane: Index
    kind: Small
    line: Small
    """Index into `LINES` (`account/ledger/lines.py`): the ledger line of the time in which only this task runs."""
    duration: Ns
    """In ns. For a task that meets others, its time in addition to the meeting's transfer."""
    gap: Ns
    """Time to the next task of the lane; negative if that was recorded to start before this one stopped."""
    meeting: Index
    """Row of the meeting (a collective or a transfer) that the task takes part in, NONE for most. Its time is mostly
    that of the meeting, so changes of durations leave such tasks out."""
    step: Index
    """Number of the training step, NONE outside all steps."""
    phase: Small
    """Index into `PHASES` (`account/ledger/phases.py`): forward, backward, optimizer, data, other."""
    kernel_class: Small
    """Index into `CLASSES` (`account/facts/kernel_classes.py`), such as matmul or attention."""
    name: Index
    """Index into the graph's words."""
    layer: Index
    """Index into the graph's words."""
    event: Ns
    """Row of table `events`, NONE for a task that was never recorded."""

    def __len__(self) -> int:
        return int(self.lane.size)

    def take(self, rows: npt.NDArray[Any]) -> Tasks:
        return Tasks(*(getattr(self, field.name)[rows] for field in fields(self)))

    def _replace(self, **columns: npt.NDArray[Any]) -> Tasks:
        return replace(self, **columns)


@dataclass(frozen=True, slots=True)
class Edges:
    """Dependencies: `dst` starts no earlier than `delay` after `src` stopped."""

    src: Index
    dst: Index
    delay: Ns
    after_start: Flags
    """Whether the delay counts from the start of `src` instead of its stop."""
    because: Small

    def __len__(self) -> int:
        return int(self.src.size)

    def take(self, rows: npt.NDArray[Any]) -> Edges:
        return Edges(*(getattr(self, field.name)[rows] for field in fields(self)))


@dataclass(frozen=True, slots=True)
class TaskMeetings:
    """Collectives and transfers, in the order in which they take turns on links."""

    transfer: Ns
    """Time once all members have arrived, alone on its link, in ns."""
    size: Ns
    """Size as `predict.costs.times` counts it, NONE if not known."""
    op: Index
    """Index into the graph's words."""
    group: Index
    """Index into the graph's words."""
    ranks: Index
    """Number of ranks of the group, 0 if not known."""
    hosts: Index
    """Number of hosts of the group, 0 if not known."""
    link: Index
    """Meetings on the same link take turns; NONE for a link of its own."""
    whole: Flags
    """Whether every member was recorded; if not, `transfer` includes the wait for the missing ones."""

    def __len__(self) -> int:
        return int(self.transfer.size)

    def take(self, rows: npt.NDArray[Any]) -> TaskMeetings:
        return TaskMeetings(*(getattr(self, field.name)[rows] for field in fields(self)))


@dataclass(frozen=True, slots=True)
class Lanes:
    """Threads and queues that run tasks one after another."""

    rank: Index
    kind: Small
    name: Index
    """Index into the graph's words."""
    origin: Ns
    """When a lane may begin, on the common clock, 0 at the start of the run: as recorded if nothing else holds back the
    lane's first task, else 0."""

    def __len__(self) -> int:
        return int(self.rank.size)


@dataclass(frozen=True, slots=True)
class StepEdges:
    """Steps of each rank, in order."""

    rank: Index
    number: Index
    first: Index
    """Task whose start begins the step. NONE on a device: a step then begins with the first start of its device
    tasks."""
    last: Index
    """Task whose stop ends the step. NONE on a device."""
    joined: Flags
    """Whether the step ends where the next one begins; else it ends with its own last stop."""
    measured: Ns
    """Time of the step in the ledger, in ns."""

    def __len__(self) -> int:
        return int(self.rank.size)


@dataclass(frozen=True, slots=True)
class MeasuredTimes:
    """Recorded start and stop of each task, on the common clock, 0 at the start of the run; NONE if never recorded."""

    start: Ns
    stop: Ns


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskGraph:
    """A run as a graph of tasks; immutable, a change makes another graph."""

    tasks: Tasks
    edges: Edges
    meetings: TaskMeetings
    lanes: Lanes
    steps: StepEdges
    measured: MeasuredTimes
    words: tuple[str, ...]
    """Texts that `name`, `layer`, `op` and `group` are indices into."""
    notes: tuple[str, ...] = ()

    @property
    def rank(self) -> Index:
        """Rank of each task."""
        rank: Index = self.lanes.rank[self.tasks.lane]
        return rank

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(np.unique(self.lanes.rank).tolist())

    @property
    def follows(self) -> Flags:
        """Whether each task has another before it on its lane."""
        lane = self.tasks.lane
        found = np.zeros(lane.size, np.bool_)
        found[1:] = lane[1:] == lane[:-1]
        return found

    def word(self, text: str) -> int:
        """Return the index of a word, NONE if the graph does not have it."""
        try:
            return self.words.index(text)
        except ValueError:
            return NONE

    def self_check(self) -> None:
        """Raise AssertionError if columns contradict each other. Only a replay finds tasks that wait for themselves,
        and refuses them."""
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
