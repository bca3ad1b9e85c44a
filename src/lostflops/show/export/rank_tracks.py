"""Tracks above the lanes of each rank: its steps, its ledger, its waits and transfers, its memory."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from lostflops.account.ledger.lines import DEFINITIONS, LINES
from lostflops.account.ledger.record import records
from lostflops.account.ledger.strips import whole
from lostflops.account.memory.events import DEVICE, device_name
from lostflops.show.export.lanes import AT_ONCE
from lostflops.show.export.packets import Packets, on
from lostflops.show.export.scene import Scene

if TYPE_CHECKING:
    from lostflops.account.ledger.record import Record

STEPS, DEVICE_STEPS, LEDGER, COLLECTIVES, MEMORY = range(5)
"""Places of tracks below a rank."""

_TOLD: Final = ("event", "group_id", "bytes_in", "bytes_out", "dtype", "seq", "peer", "meeting", "seen", "expected")
_WAIT_TOLD: Final = ("late_rank", "basis")
_LEDGER: Final = "Each ns is on exactly one line. " + "; ".join(f"{line}: {said}" for line, said in DEFINITIONS.items())
_WAITS: Final = "Wait: until the last rank seen has arrived. Transfer: from then to the end."


def draw_steps(scene: Scene) -> None:
    for name, start, stop, order in (
        ("steps", "start", "stop", STEPS),
        ("steps on the device", "device_start", "device_stop", DEVICE_STEPS),
    ):
        rows = scene.run.rows(
            f"select rank, step, {start}, {stop} from steps where {scene.rank_filter} and {start} is not null "
            f"and {stop} is not null and {scene.inside(start, stop)} order by rank, {start}, {stop} desc"
        )
        for rank, own in groupby(rows, itemgetter(0)):
            _draw(scene, rank, (name, order, ""), [(row[2], row[3], _step(scene.packets, row[1])) for row in own])


def _step(packets: Packets, step: int) -> bytes:
    return packets.encode_name(f"step {step}") + packets.of_category("step") + packets.encode_value("step", step)


def draw_ledgers(scene: Scene) -> None:
    for record in records(scene.run, scene.ranks):
        edges, lines = _ledger(scene, record)
        bodies = [scene.packets.encode_name(line) + scene.packets.of_category("ledger") for line in LINES]
        _draw_edges(scene, record.rank, ("ledger", LEDGER, _LEDGER), edges, map(bodies.__getitem__, lines))


def _ledger(scene: Scene, record: Record) -> tuple[npt.NDArray[np.int64], list[int]]:
    """Return the edges of all pieces in order of time, and the line of each."""
    held = whole(record).lines
    if scene.windows is not None:
        held = {line: pieces & scene.windows[record.rank] for line, pieces in held.items()}
    start = np.concatenate([held[line].start for line in LINES])
    stop = np.concatenate([held[line].stop for line in LINES])
    place = np.repeat(np.arange(len(LINES)), [held[line].start.size for line in LINES])
    order = np.lexsort((stop, start))
    return np.column_stack((start, stop))[order], place[order].tolist()


def draw_collectives(scene: Scene) -> None:
    told = ", ".join((*_TOLD, *_WAIT_TOLD))
    rows = scene.run.sql(
        "select rank, start, greatest(start, stop) as ends, wait, coalesce(op, 'communication') as called, "
        f"{told} from collectives left join arrivals using (rank, event) "
        f"where {scene.rank_filter} and event is not null and {scene.inside('start', 'stop')} "
        "order by rank, start, ends desc, event"
    ).iter_rows(AT_ONCE)
    for rank, own in groupby(rows, itemgetter(0)):
        slices = [piece for row in own for piece in _waits(scene.packets, row)]
        slices.sort(key=lambda piece: (piece[0], -piece[1]))
        _draw(scene, rank, ("waits and transfers", COLLECTIVES, _WAITS), slices)


def _waits(packets: Packets, row: tuple[Any, ...]) -> list[tuple[int, int, bytes]]:
    """Return the wait and the transfer of a collective as slices; one slice if the wait is unknown."""
    _, start, stop, wait, called, *told = row
    said = b"".join(packets.encode_value(key, value) for key, value in zip(_TOLD, told, strict=False))

    def piece(begin: int, end: int, what: str, more: bytes = b"") -> tuple[int, int, bytes]:
        name = f"{called}, {what}"
        return begin, end, packets.encode_name(name) + packets.of_category("collective") + said + more

    if wait is None:
        return [piece(start, stop, "wait unknown")]
    ready = min(start + wait, stop)
    late = b"".join(packets.encode_value(key, value) for key, value in zip(_WAIT_TOLD, told[len(_TOLD) :], strict=True))
    waited = [piece(start, ready, "wait", late)] if ready > start else []
    return [*waited, piece(ready, stop, "transfer")]


def draw_memory(scene: Scene) -> None:
    """Draw the allocated memory after each allocation and free, for each device."""
    rows = scene.run.sql(
        f"select rank, kind, index, time, allocated from (select *, {DEVICE} from memory) "
        f"where {scene.rank_filter} and allocated is not null and {scene.inside('time', 'time')} "
        "order by rank, kind, index, time"
    ).iter_rows(AT_ONCE)
    for (rank, kind, index), own in groupby(rows, itemgetter(0, 1, 2)):
        number = next(scene.numbers)
        scene.packets.counter(number, scene.place(rank, f"memory allocated, {device_name((kind, index))}", MEMORY))
        track = on(number)
        while part := list(islice(own, AT_ONCE)):
            _, written = scene.times(rank, (row[3] for row in part))
            for row, time in zip(part, written, strict=True):
                scene.packets.point(track, time, row[4])


def _draw(scene: Scene, rank: int, track: tuple[str, int, str], slices: list[tuple[int, int, bytes]]) -> None:
    edges = np.array([(start, stop) for start, stop, _ in slices], np.int64).reshape(-1, 2)
    _draw_edges(scene, rank, track, edges, (body for _, _, body in slices))


def _draw_edges(
    scene: Scene,
    rank: int,
    track: tuple[str, int, str],
    edges: npt.NDArray[np.int64],
    bodies: Iterable[bytes],
) -> None:
    """Draw slices, in order of start, on a track with this name, place and explanation."""
    starts, written_starts = scene.times(rank, edges[:, 0])
    stops, written_stops = scene.times(rank, edges[:, 1])
    written = zip(written_starts, written_stops, strict=True)
    with scene.spread(scene.place(rank, *track)) as spread:
        for start, stop, both, body in zip(starts, stops, written, bodies, strict=True):
            spread.add(start, stop, both, body)
