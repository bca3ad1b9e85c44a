"""Events of threads and streams as slices, each with its time, its name and its details.

An arrow leads from each launching call to what it launched, and another through all ranks of a collective.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Final

from lostflops.account.align.longest_events import SHOWN
from lostflops.show.export.packets import Packets, flow
from lostflops.show.export.scene import Scene

Row = tuple[Any, ...]

STREAMS, THREADS = 100, 10_000
"""Places of the first stream and the first thread below a rank; each lane has its own."""
AT_ONCE: Final = 8192

_DEVICE: Final = "('kernel', 'comm', 'memcpy', 'memset')"
_TOLD: Final = (
    "annotation", "module", "source", "shapes", "dtypes", "inputs", "bytes", "grid", "block", "registers",
    "shared_memory", "occupancy", "wait_stream", "group_id", "bytes_in", "bytes_out",
)  # fmt: skip
_FIRST_TOLD: Final = 10
_SAME: Final = slice(5, 7)
"""Columns of kind and name."""
_MOST_KEPT: Final = 100_000
_EVENT_FLOWS: Final = 40
"""Bits for the event number in the number of a flow; the rank is in the bits above, meetings have the highest bit."""
_MEETING: Final = 1 << 63


def draw(scene: Scene, ranks: list[int]) -> None:
    """Draw the events of these ranks, a chunk of a lane at a time."""
    lanes, bodies = _lanes(scene), _Bodies(scene.packets)
    for (rank, lane), rows in groupby(_rows(scene, ranks), itemgetter(0, 1)):
        name, order = lanes.get((rank, lane), (f"lane {lane}", THREADS + lane))
        with scene.spread(scene.place(rank, name, order)) as spread:
            while part := list(islice(rows, AT_ONCE)):
                starts, written_starts = scene.times(rank, (row[3] for row in part))
                stops, written_stops = scene.times(rank, (row[4] for row in part))
                edges = zip(written_starts, written_stops, strict=True)
                for row, start, stop, written in zip(part, starts, stops, edges, strict=True):
                    spread.add(start, stop, written, bodies.of(row))


def meeting_flow(meeting: int) -> int:
    return _MEETING | meeting


def launch_flow(rank: int, launched: int) -> int:
    return (rank + 1) << _EVENT_FLOWS | launched


class _Bodies:
    """Contents of slices. Most are equal to others; only events and arrows are unique."""

    def __init__(self, packets: Packets) -> None:
        self._packets = packets
        self._said: dict[Row, bytes] = {}

    def of(self, row: Row) -> bytes:
        rank, _, event, _, _, _, _, launches, is_launched, meeting, step = row[: _FIRST_TOLD + 1]
        told = self._packets.encode_value
        # In every step the same is said: only its number is not.
        own = self._same(row[_SAME]) + told("step", step) + self._same(row[_FIRST_TOLD + 1 :]) + told("event", event)
        for launched in launches or ():
            own += flow(launch_flow(rank, launched))
        if is_launched:
            own += flow(launch_flow(rank, event), ends=True)
        return own if meeting is None else own + flow(meeting_flow(meeting))

    def _same(self, key: Row) -> bytes:
        if (found := self._said.get(key)) is None:
            if len(self._said) > _MOST_KEPT:
                self._said.clear()
            found = self._said[key] = self._make(key)
        return found

    def _make(self, key: Row) -> bytes:
        if len(key) < len(_TOLD):
            return self._packets.encode_name(key[1]) + self._packets.of_category(key[0])
        return b"".join(self._packets.encode_value(name, value) for name, value in zip(_TOLD, key, strict=True))


def _rows(scene: Scene, ranks: list[int]) -> Iterator[Row]:
    """Yield rows by lane in order of start, an outer event before those inside it."""
    chosen = f"rank in ({', '.join(map(str, ranks))})"
    query = f"""
        with drawn as (
            select * from events where {chosen} and {SHOWN} and {scene.inside("start", "start + dur")}
        ), calls as (
            select rank, correlation, arg_min(event, row(start, event)) as call from drawn
            where kind = 'runtime' and correlation >= 0 group by all
        ), launched as (
            select rank, event, call from drawn join calls using (rank, correlation) where kind in {_DEVICE}
        ), launching as (
            select rank, call as event, list(event order by event) as launches from launched group by all
        ), met as (
            select distinct on (rank, event) rank, event, meeting, group_id, bytes_in, bytes_out
            from collectives left join arrivals using (rank, event)
            where {chosen} and event is not null order by rank, event, ordinal
        )
        select rank, lane, event, start, start + dur as stop, kind, coalesce(name, ''), launches, call is not null,
            meeting, drawn.step, annotation, module, source, shapes, dtypes, inputs, bytes,
            grid_x || ' x ' || grid_y || ' x ' || grid_z, block_x || ' x ' || block_y || ' x ' || block_z, registers,
            shared_memory, occupancy, wait_stream, group_id, bytes_in, bytes_out
        from drawn left join launching using (rank, event) left join launched using (rank, event)
            left join met using (rank, event)
        order by rank, lane, start, stop desc, event"""
    return iter(scene.run.sql(query).iter_rows(AT_ONCE))


def _lanes(scene: Scene) -> dict[tuple[int, int], tuple[str, int]]:
    """Return name and place of each lane; streams come first."""
    rows = scene.run.rows(f"select rank, lane, kind, thread, stream, trim(name) from lanes where {scene.rank_filter}")
    return {
        (rank, lane): (name or f"stream {stream}", STREAMS + lane)
        if kind == "stream"
        else (name or (f"thread {thread}" if thread else "others"), THREADS + lane)
        for rank, lane, kind, thread, stream, name in rows
    }
