"""One rank's part of a graph, from a trace of a device and the host that launched its work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from lostflops.graph.device_host import PYTHON, HostTasks, host_tasks, names_between
from lostflops.graph.device_streams import Needs, Streams, needs, streams
from lostflops.graph.device_syncs import Syncs, with_syncs
from lostflops.graph.device_waits import waits
from lostflops.graph.parts import Lane, Part, PartSteps
from lostflops.graph.tasks import NONE, Because, Edges, Kind, LaneKind, Tasks
from lostflops.ledger.lines import LINES
from lostflops.ledger.parts import kernel_classes
from lostflops.ledger.phases import phases_at
from lostflops.ledger.record import COMM, KERNEL, Codes, Flags, Ns, Record, distinct

if TYPE_CHECKING:
    from lostflops.ledger.windows import Window
    from lostflops.store.run import Run

_WORTH_TELLING: Final = 1_000_000
NOT_RECORDED: Final = "waits for what was not recorded"
_UNNAMED: Final = {-1: PYTHON, -2: NOT_RECORDED}
_ON_DEVICE: Final = (
    (KERNEL, Kind.KERNEL, "compute"),
    (COMM, Kind.COMM, "comm.transfer"),
    (2, Kind.COPY, "copy"),
)


def device_part(run: Run, record: Record, edges: Window) -> Part:
    made = streams(record)
    host, owner = host_tasks(record)
    syncs = with_syncs(record, made, host, owner)
    phase = _launch_phases(record, made)
    waited = waits(record, made, phase)
    needed = needs(made, _call_times(record, made, owner), waited.held)
    launch = _launch_edges(made, syncs, needed, owner)
    laid = _laid(made, needed, syncs.tasks.row.size)
    tasks, words = _tasks(record, made, syncs, laid, phase)
    return Part(
        record.rank,
        _lanes(run, record, made, syncs.tasks),
        tasks,
        _edges(
            (launch[0], laid.entry[launch[1]], launch[2], True, Because.LAUNCH),
            (laid.task[syncs.src], syncs.dst, syncs.delay, syncs.early, Because.SYNC),
            (laid.task[waited.src], laid.task[waited.dst], waited.delay, False, Because.STREAM),
        ),
        _steps(edges),
        np.concatenate((syncs.tasks.start, laid.start)),
        np.concatenate((syncs.tasks.stop, laid.stop)),
        words,
        _notes(record, made, int(needed.hold.sum())),
    )


def _launch_phases(record: Record, made: Streams) -> Codes:
    known = made.launch >= 0
    times = np.where(known, record.host.start[made.launch], 0)
    return phases_at(record, times, np.where(known, record.host.lane[made.launch], -1))


def _call_times(record: Record, made: Streams, owner: Codes) -> Ns:
    known = made.launch >= 0
    return np.where(known, record.host.stop[owner[made.launch]] - np.where(known, made.called, 0), 0)


def _launch_edges(made: Streams, syncs: Syncs, needed: Needs, owner: Codes) -> tuple[Codes, Codes, Ns]:
    """From tasks that launch to places, with what each needs."""
    task = np.where(made.launch >= 0, syncs.launch[owner[made.launch]], -1)
    at = np.flatnonzero(task >= 0)
    begun = syncs.tasks.start[task[at]]
    moved = np.where(
        syncs.full[task[at]],
        np.minimum(made.start[at] - begun, made.latency[at]),
        needed.delay[at] + made.called[at] - begun,
    )
    return task[at], at, moved


class _Laid(NamedTuple):
    """Streams as tasks, behind those of the host: where something stood still for what was not recorded, that is a task
    before it. `task` is that of each place and `entry` the one that its launch lets start; the other columns are of
    these tasks, with `place` the place that each belongs to."""

    task: Codes
    entry: Codes
    place: Codes
    stands: Flags
    start: Ns
    stop: Ns
    gap: Ns


def _laid(made: Streams, needed: Needs, behind: int) -> _Laid:
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
    return _Laid(task + behind, task - held + behind, place, stands, start, stop, gap)


def _tasks(record: Record, made: Streams, syncs: Syncs, laid: _Laid, phase: Codes) -> tuple[Tasks, tuple[str, ...]]:
    """The host's lanes, then the streams."""
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
        _index(host.lane, streams_from + _numbered(made.lane[laid.place])[1]),
        _small(host.kind, kind),
        _small(host.line, line),
        np.concatenate((host.stop - host.start, np.where(kind == Kind.COMM, 0, laid.stop - laid.start))),
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
    kind[stands] = Kind.MARK
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
    """Name and layer of each task, and the words that they are indices into."""
    code = np.concatenate((host_names, np.where(stands, -2, record.device.name[rows])))
    used, name = _numbered(code + 2)
    words = [_UNNAMED[text - 2] if text < 2 else record.names[text - 2] for text in used]
    modules, place = _numbered(record.device.module[rows])
    texts = [record.modules[module] for module in modules]
    coded = np.array([NONE if not text else len(words) + i for i, text in enumerate(texts)], np.int32)
    layer = np.concatenate((np.full(host_names.size, NONE, np.int32), coded[place]))
    return name.astype(np.int32), layer.astype(np.int32), (*words, *texts)


def _numbered(codes: Codes) -> tuple[list[int], Codes]:
    """The codes that occur, none of them negative, and the place of each among them."""
    used = distinct(codes)
    place = np.zeros(used[-1] + 1 if used else 0, np.int64)
    place[used] = np.arange(len(used))
    return used, place[codes]


def _edges(*kinds: tuple[Codes, Codes, Ns, Flags | bool, Because]) -> Edges:
    src, dst, delay, early, because = zip(*kinds, strict=True)
    sizes = [part.size for part in src]
    return Edges(
        _index(*src),
        _index(*dst),
        np.concatenate(delay).astype(np.int64),
        np.concatenate([np.broadcast_to(flag, size) for flag, size in zip(early, sizes, strict=True)]),
        np.repeat(np.array(because, np.int8), sizes),
    )


def _lanes(run: Run, record: Record, made: Streams, host: HostTasks) -> tuple[Lane, ...]:
    """A host's lane begins where the recording found it, and so does a stream whose first launch was not recorded."""
    told = run.sql(f"select lane, coalesce(name, 'stream ' || stream, '') from lanes where rank = {record.rank}")
    names = dict(told.fetchall())
    first = np.flatnonzero(np.diff(host.lane, prepend=-1))
    threads = [Lane(LaneKind.HOST, names.get(int(host.thread[i]), ""), int(host.start[i])) for i in first.tolist()]
    begins = [place for place, _ in made.bounds()]
    return (
        *threads,
        *(
            Lane(
                LaneKind.STREAM,
                names.get(int(made.lane[place]), ""),
                None if made.launch[place] >= 0 else int(made.start[place]),
            )
            for place in begins
        ),
    )


def _steps(edges: Window) -> PartSteps:
    number = np.array(edges.number, np.int64)
    none = np.full(number.size, NONE, np.int64)
    joined = np.zeros(number.size, np.bool_)
    joined[:-1] = edges.stop[:-1] == edges.start[1:]
    return PartSteps(number, none, none, joined, edges.stop - edges.start)


def _notes(record: Record, made: Streams, unexplained: int) -> tuple[str, ...]:
    found = []
    if unexplained > _WORTH_TELLING:
        found.append(
            f"rank {record.rank}: queued work waited {unexplained / 1e6:.1f} ms on its device for something that was "
            "not recorded; the replay keeps that time"
        )
    lost = int((made.launch < 0).sum())
    if lost:
        found.append(
            f"rank {record.rank}: {lost:,} of {made.row.size:,} device events have no recorded launch; the replay "
            "keeps the time between them"
        )
    return tuple(found)
