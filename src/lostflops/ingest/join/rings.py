"""Group and sequence number of gloo collectives in a rank's trace, from the ring that the collector recorded.

The ring is the Flight Recorder's, so the rules are those of a dump (`join.flight`); if there is a dump, it is used
instead.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

from lostflops.ingest.formats.capture import reader as capture
from lostflops.ingest.formats.flight_recorder import reader as flight_recorder
from lostflops.ingest.formats.kineto import reader as kineto
from lostflops.ingest.join.flight import Ring, fill, groupless, with_stat
from lostflops.ingest.join.gloo_order import FlightEntries
from lostflops.ingest.join.written_ranks import Columns, Files, WrittenRanks, in_stretches, ranks_with
from lostflops.store.commit import RunWriter
from lostflops.store.tables import COLLECTIVES, ENQUEUES, FLIGHT, GROUPS, STATS

_AROUND: Final = 120_000_000_000
"""Only entries that were enqueued this close to the trace are read from a long job's ring, in ns."""
_ENTRY: Final = ("record", "name", "op", "bytes_in", "group_id", "seq", "created")


def number_by_ring(run: RunWriter, files: Files, ranks: set[int]) -> None:
    """Complete each of `ranks` that has a trace and a ring; `files` is changed to name the new parts."""
    with_ring = ranks_with(files, ENQUEUES, capture.NAME) - ranks_with(files, FLIGHT, flight_recorder.NAME)
    in_stretches(run, files, ranks & with_ring & ranks_with(files, COLLECTIVES, kineto.NAME), _complete)


def _complete(written: WrittenRanks) -> None:
    collectives = written.read(COLLECTIVES, kineto.NAME)
    if not any("gloo" in columns["metadata"] for columns in collectives.values()):
        return
    begins = {rank: written.profiled_from(rank) for rank in written.ranks}
    times = [begin for own in begins.values() for begin in own]
    near = f"created BETWEEN {min(times) - _AROUND} AND {max(times) + _AROUND}"
    ring, stats = written.read(ENQUEUES, capture.NAME, near), written.read(STATS, kineto.NAME)
    told = [written.read(GROUPS, source) for source in (kineto.NAME, capture.NAME)]
    for rank in written.ranks:
        if "gloo" not in collectives[rank]["metadata"] or not ring[rank]["record"]:
            continue
        sizes = {g: n for groups in told for g, n in zip(groups[rank]["group_id"], groups[rank]["size"], strict=True)}
        fill(collectives[rank], sizes, {begin: _ring(ring[rank], begin) for begin in begins[rank]})
        stats[rank] = with_stat(stats[rank], groupless(rank, collectives[rank]))
    written.replace(COLLECTIVES, kineto.NAME, collectives)
    written.replace(STATS, kineto.NAME, stats)


def _ring(ring: Columns, time: int) -> Ring:
    rows = _around(ring, time)
    columns = {name: [ring[name][row] for row in rows] for name in (*_ENTRY, "is_p2p")}
    # Transfers are counted by themselves.
    columns["seq"] = [None if p2p else seq for seq, p2p in zip(columns["seq"], columns["is_p2p"], strict=True)]
    return Ring(FlightEntries(*(columns[name] for name in _ENTRY)), columns["group_id"])


def _around(ring: Columns, time: int) -> list[int]:
    """Return rows of the attempt that ran at `time`, between the gaps in the ring before and after that time."""
    attempts = {a for a, created in zip(ring["attempt"], ring["created"], strict=True) if _whole(created) <= time}
    attempt = max(attempts or ring["attempt"])
    rows = [row for row, number in enumerate(ring["attempt"]) if number == attempt]
    rows.sort(key=lambda row: _whole(ring["record"][row]))
    stretch: list[int] = rows[:1]
    for before, after in pairwise(rows):
        if ring["record"][after] != ring["record"][before] + 1:
            if _whole(ring["created"][after]) > time:
                break
            stretch.clear()
        stretch.append(after)
    return stretch


def _whole(value: Any) -> int:
    return -1 if value is None else int(value)
