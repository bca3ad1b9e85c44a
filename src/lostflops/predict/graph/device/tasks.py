"""The tasks of a rank with a device: the host's lanes, then its streams."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.parts import kernel_classes
from lostflops.account.ledger.phases import phases_at
from lostflops.account.ledger.record import COMM, KERNEL, MEMCPY, Codes, Flags, Ns, Record, distinct
from lostflops.predict.graph.device.host import PYTHON, names_between
from lostflops.predict.graph.device.streams import Needs, Streams
from lostflops.predict.graph.device.syncs import Syncs
from lostflops.predict.graph.tasks import NONE, TaskKind, Tasks

NOT_RECORDED: Final = "wait for something not recorded"
_UNNAMED: Final = {-1: PYTHON, -2: NOT_RECORDED}
_ON_DEVICE: Final = (
    (KERNEL, TaskKind.KERNEL, "compute"),
    (COMM, TaskKind.COMM, "comm.transfer"),
    (MEMCPY, TaskKind.COPY, "copy"),
)


class StreamTasks(NamedTuple):
    """Streams as tasks, numbered after those of the host; a place that waited for something not recorded has a task for
    that wait before it."""

    task: Codes
    """Task of each place."""
    entry: Codes
    """Task that the launch of each place lets start."""
    place: Codes
    """Place that each task belongs to; this and the following columns have a row per task."""
    stands: Flags
    """Whether the task is such a wait."""
    start: Ns
    stop: Ns
    gap: Ns


def laid_out(made: Streams, needed: Needs, behind: int) -> StreamTasks:
    held = needed.hold > 0
    place = np.repeat(np.arange(made.row.size), 1 + held)
    stands = np.zeros(place.size, np.bool_)
    stands[:-1] = place[1:] == place[:-1]
    task = np.flatnonzero(~stands)
    start, stop = made.start[place], made.stop[place]
    stop[stands] = start[stands]
    start[stands] -= needed.hold[held]
    gap = np.zeros(place.size, np.int64)
    after = np.flatnonzero(made.before >= 0)
    gap[task[made.before[after]]] = needed.gap[after]
    return StreamTasks(task + behind, task - held + behind, place, stands, start, stop, gap)


def tasks_of(
    record: Record, made: Streams, syncs: Syncs, laid: StreamTasks, phase: Codes
) -> tuple[Tasks, tuple[str, ...]]:
    """Return the tasks, the host's lanes first and then the streams, and the words."""
    host = syncs.tasks
    own, device, row = host.row.size, record.device, made.row[laid.place]
    streams_from = int(host.lane.max()) + 1 if own else 0
    gap = np.zeros(own, np.int64)
    follows = np.flatnonzero(host.lane[1:] == host.lane[:-1])
    gap[follows] = syncs.called[follows + 1] - host.stop[follows]
    kind, line = _kinds(made.kind[laid.place], laid.stands)
    names, layers, words = _words(record, names_between(record, host), row, laid.stands)
    event = np.where(host.row >= 0, record.host.event[host.row], NONE)
    tasks = Tasks(
        _index(host.lane, streams_from + _number_codes(made.lane[laid.place])[1]),
        _small(host.kind, kind),
        _small(host.line, line),
        np.concatenate((host.stop - host.start, np.where(kind == TaskKind.COMM, 0, laid.stop - laid.start))),
        np.concatenate((gap, laid.gap)),
        np.full(own + row.size, NONE, np.int32),
        _index(_steps_at(record, host.start), device.step[row]),
        _small(phases_at(record, host.start, host.thread), phase[laid.place]),
        _small(np.full(own, NONE), np.where(laid.stands, NONE, kernel_classes(record)[row])),
        names,
        layers,
        np.concatenate((event, np.where(laid.stands, NONE, device.event[row]))),
    )
    return tasks, words


def _kinds(codes: Codes, stands: Flags) -> tuple[Codes, Codes]:
    kind, line = np.empty(codes.size, np.int64), np.empty(codes.size, np.int64)
    for code, is_kind, stands_on in _ON_DEVICE:
        kind[codes == code] = is_kind
        line[codes == code] = LINES.index(stands_on)
    kind[stands] = TaskKind.MARK
    line[stands] = LINES.index("idle.dependency")
    return kind, line


def _index(*parts: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    return np.concatenate(parts).astype(np.int32)


def _small(*parts: npt.NDArray[Any]) -> npt.NDArray[np.int8]:
    return np.concatenate(parts).astype(np.int8)


def _steps_at(record: Record, times: Ns) -> Codes:
    steps = record.steps
    at = np.searchsorted(steps.start, times, side="right") - 1
    inside = (at >= 0) & (times < steps.stop[at])
    return np.where(inside, steps.number[at], NONE)


def _words(
    record: Record, host_names: Codes, rows: Codes, stands: Flags
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], tuple[str, ...]]:
    """Return name and layer of each task, and the words that they are indices into."""
    code = np.concatenate((host_names, np.where(stands, -2, record.device.name[rows])))
    used, name = _number_codes(code + 2)
    words = [_UNNAMED[text - 2] if text < 2 else record.names[text - 2] for text in used]
    modules, place = _number_codes(record.device.module[rows])
    texts = [record.modules[module] for module in modules]
    coded = np.array([NONE if not text else len(words) + i for i, text in enumerate(texts)], np.int32)
    layer = np.concatenate((np.full(host_names.size, NONE, np.int32), coded[place]))
    return name.astype(np.int32), layer.astype(np.int32), (*words, *texts)


def _number_codes(codes: Codes) -> tuple[list[int], Codes]:
    """Return the distinct codes and the place of each code among them; no code may be negative."""
    used = distinct(codes)
    place = np.zeros(used[-1] + 1 if used else 0, np.int64)
    place[used] = np.arange(len(used))
    return used, place[codes]
