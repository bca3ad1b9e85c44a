"""One rank's part of a graph, from a trace of a device and the host that launched its work."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.ledger.phases import phases_at
from lostflops.account.ledger.record import Codes, Flags, Ns, Record
from lostflops.core.units import format_share
from lostflops.predict.graph.device.host import HostTasks, host_tasks
from lostflops.predict.graph.device.lost_rows import RestoredRecord, restore_calls
from lostflops.predict.graph.device.lost_syncs import restore_syncs
from lostflops.predict.graph.device.streams import Needs, Streams, needs, streams
from lostflops.predict.graph.device.syncs import Syncs, with_syncs
from lostflops.predict.graph.device.tasks import laid_out, tasks_of
from lostflops.predict.graph.device.waits import waits
from lostflops.predict.graph.parts import GraphPart, PartSteps, RankNote, TaskLane
from lostflops.predict.graph.tasks import NONE, Because, Edges, LaneKind

if TYPE_CHECKING:
    from lostflops.account.ledger.windows import LedgerWindow
    from lostflops.predict.graph.lost_calls import LostCalls

_WORTH_TELLING: Final = 0.02
"""Smallest part of the steps' time that is worth a note."""


def device_part(
    record: Record, edges: LedgerWindow, names: Mapping[int, str], lost: LostCalls | None = None
) -> GraphPart:
    """Build the part of a rank with a device; `names` are those of the rank's lanes."""
    record, meets = restore_calls(record, lost) if lost else RestoredRecord(record, {})
    record = restore_syncs(record)
    made = streams(record)
    host, owner = host_tasks(record)
    syncs = with_syncs(record, made, host, owner)
    phase = _launch_phases(record, made)
    waited = waits(record, made, phase)
    needed = needs(made, _call_times(record, made, owner), waited.held)
    launch = _launch_edges(made, syncs, needed, owner)
    laid = laid_out(made, needed, syncs.tasks.row.size)
    tasks, words = tasks_of(record, made, syncs, laid, phase)
    return GraphPart(
        record.rank,
        _lanes(made, syncs.tasks, names),
        tasks,
        _edges(
            (launch[0], laid.entry[launch[1]], launch[2], True, Because.LAUNCH),
            (laid.task[syncs.src], syncs.dst, syncs.delay, syncs.early, Because.SYNC),
            (laid.task[waited.src], laid.task[waited.dst], waited.delay, False, Because.STREAM),
        ),
        _steps(record, edges),
        np.concatenate((syncs.tasks.start, laid.start)),
        np.concatenate((syncs.tasks.stop, laid.stop)),
        words,
        meets={int(laid.task[place]): meets[int(made.row[place])] for place in _restored_places(made, meets)},
        rank_notes=tuple(_notes(made, made.row.size - len(meets), int(needed.hold.sum()), edges.wall)),
    )


def _restored_places(made: Streams, meets: Mapping[int, Hashable]) -> list[int]:
    places: list[int] = np.flatnonzero(made.row >= min(meets)).tolist() if meets else []
    return places


def _launch_phases(record: Record, made: Streams) -> Codes:
    known = made.launch >= 0
    times = np.where(known, record.host.start[made.launch], 0)
    return phases_at(record, times, np.where(known, record.host.lane[made.launch], -1))


def _call_times(record: Record, made: Streams, owner: Codes) -> Ns:
    known = made.launch >= 0
    return np.where(known, record.host.stop[owner[made.launch]] - np.where(known, made.called, 0), 0)


def _launch_edges(made: Streams, syncs: Syncs, needed: Needs, owner: Codes) -> tuple[Codes, Codes, Ns]:
    """Return edges from tasks that launch to places in `Streams`: task, place, and the delay of each."""
    task = np.where(made.launch >= 0, syncs.launch[owner[made.launch]], -1)
    at = np.flatnonzero(task >= 0)
    begun = syncs.tasks.start[task[at]]
    moved = np.where(
        syncs.full[task[at]],
        np.minimum(made.start[at] - begun, made.latency[at]),
        needed.delay[at] + made.called[at] - begun,
    )
    return task[at], at, moved


def _edges(*kinds: tuple[Codes, Codes, Ns, Flags | bool, Because]) -> Edges:
    src, dst, delay, early, because = zip(*kinds, strict=True)
    sizes = [part.size for part in src]
    return Edges(
        np.concatenate(src).astype(np.int32),
        np.concatenate(dst).astype(np.int32),
        np.concatenate(delay).astype(np.int64),
        np.concatenate([np.broadcast_to(flag, size) for flag, size in zip(early, sizes, strict=True)]),
        np.repeat(np.array(because, np.int8), sizes),
    )


def _lanes(made: Streams, host: HostTasks, names: Mapping[int, str]) -> tuple[TaskLane, ...]:
    """Return the lanes. A host's lane begins where the recording found it, and so does a stream whose first launch was
    not recorded."""
    first = np.flatnonzero(np.diff(host.lane, prepend=-1))
    threads = [TaskLane(LaneKind.HOST, names.get(int(host.thread[i]), ""), int(host.start[i])) for i in first.tolist()]
    begins = [place for place, _ in made.bounds()]
    return (
        *threads,
        *(
            TaskLane(
                LaneKind.STREAM,
                names.get(int(made.lane[place]), ""),
                None if made.launch[place] >= 0 else int(made.start[place]),
            )
            for place in begins
        ),
    )


def _steps(record: Record, edges: LedgerWindow) -> PartSteps:
    """Return the steps in which something was launched: others have no edge on the device."""
    told = np.isin(edges.number, record.device.step)
    number = np.array(edges.number, np.int64)[told]
    none = np.full(number.size, NONE, np.int64)
    joined = np.zeros(told.size, np.bool_)
    joined[:-1] = edges.stop[:-1] == edges.start[1:]
    return PartSteps(number, none, none, joined[told], (edges.stop - edges.start)[told])


def _notes(made: Streams, recorded: int, still: int, wall: int) -> Iterator[RankNote]:
    if still > _WORTH_TELLING * wall:
        said = "queued work waited {} on the device for something that was not recorded; the replay keeps that time"
        yield RankNote(said, still, f"{still / 1e6:.1f} ms")
    if lost := int((made.is_launch_lost & (made.row < recorded)).sum()):
        share = lost / recorded
        said = "{} of device events have no recorded launch although earlier ones do; the replay keeps the gaps"
        yield RankNote(said, share, format_share(share))
