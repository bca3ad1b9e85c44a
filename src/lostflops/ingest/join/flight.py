"""A rank's trace and its Flight Recorder dump complete each other.

The trace lists the members of groups, which a gloo dump does not; the dump has the group and the sequence number of
gloo collectives, which the trace does not. It works on written rows, so the two files may be ingested together or one
after the other, and nothing is read twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from lostflops.ingest.formats.flight_recorder import reader as flight_recorder
from lostflops.ingest.formats.flight_recorder.dump import GROUPS_UNKNOWN
from lostflops.ingest.formats.kineto import reader as kineto
from lostflops.ingest.join.gloo_order import NOT_QUEUED, FlightEntries, GlooEvents, match
from lostflops.ingest.join.written_ranks import Columns, Files, WrittenRanks, in_stretches, ranks_with
from lostflops.ingest.timeline.observations import KINETO_OBSERVATIONS
from lostflops.store.commit import RunWriter
from lostflops.store.tables import COLLECTIVES, FLIGHT, GROUPS, STATS


def complete_ranks(run: RunWriter, files: Files, ranks: set[int]) -> None:
    """Complete each of `ranks` that has both files; `files` is changed to name the new parts."""
    with_dump = ranks_with(files, FLIGHT, flight_recorder.NAME)
    with_trace = ranks_with(files, COLLECTIVES, kineto.NAME) | ranks_with(files, GROUPS, kineto.NAME)
    in_stretches(run, files, ranks & with_dump & with_trace, _complete)


def _complete(written: WrittenRanks) -> None:
    flight = written.read(FLIGHT, flight_recorder.NAME)
    trace_groups = written.read(GROUPS, kineto.NAME)
    dump_groups = written.read(GROUPS, flight_recorder.NAME)
    collectives = written.read(COLLECTIVES, kineto.NAME)
    dump_stats = written.read(STATS, flight_recorder.NAME)
    trace_stats = written.read(STATS, kineto.NAME)
    for rank in written.ranks:
        _name_groups(flight[rank], trace_groups[rank], dump_groups[rank])
        dump_groups[rank] = _without(dump_groups[rank], set(trace_groups[rank]["group_id"]))
        unknown = flight[rank]["group_id"].count(None)
        row = (rank, flight_recorder.NAME, "flight_groups_unknown", "missing", unknown, GROUPS_UNKNOWN)
        dump_stats[rank] = with_stat(dump_stats[rank], row)
        if "gloo" in collectives[rank]["metadata"]:
            sizes = dict(zip(trace_groups[rank]["group_id"], trace_groups[rank]["size"], strict=True))
            names = ("record", "name", "op", "bytes_in", "group_name", "seq", "created")
            entries = FlightEntries(*(flight[rank][name] for name in names))
            ring = Ring(entries, flight[rank]["group_id"])
            fill(collectives[rank], sizes, dict.fromkeys(written.profiled_from(rank), ring))
            trace_stats[rank] = with_stat(trace_stats[rank], groupless(rank, collectives[rank]))
    written.replace(FLIGHT, flight_recorder.NAME, flight)
    written.replace(GROUPS, flight_recorder.NAME, dump_groups)
    written.replace(STATS, flight_recorder.NAME, dump_stats)
    if any("gloo" in columns["metadata"] for columns in collectives.values()):
        written.replace(COLLECTIVES, kineto.NAME, collectives)
        written.replace(STATS, kineto.NAME, trace_stats)


def _name_groups(flight: Columns, trace_groups: Columns, dump_groups: Columns) -> None:
    ids = dict(zip(dump_groups["name"], dump_groups["group_id"], strict=True))
    ids |= dict(zip(trace_groups["name"], trace_groups["group_id"], strict=True))
    flight["group_id"] = [
        known or ids.get(name) for known, name in zip(flight["group_id"], flight["group_name"], strict=True)
    ]


def groupless(rank: int, collectives: Columns) -> tuple[Any, ...]:
    pairs = zip(collectives["group_id"], collectives["metadata"], strict=True)
    count = sum(group is None and metadata == "gloo" for group, metadata in pairs)
    what = "collectives_without_group"
    effect, reason = KINETO_OBSERVATIONS[what]
    return rank, kineto.NAME, what, effect, count, reason


def with_stat(stats: Columns, row: tuple[Any, ...]) -> Columns:
    """Return the observations with this one in place of an earlier one; a count of 0 removes it."""
    what, count = row[2], row[4]
    others = [number for number, name in enumerate(stats["what"]) if name != what]
    corrected = {name: [values[number] for number in others] for name, values in stats.items()}
    if count:
        for name, value in zip(STATS.column_names(), row, strict=True):
            corrected[name].append(value)
    return corrected


def _without(groups: Columns, known: set[str]) -> Columns:
    kept = [row for row, group in enumerate(groups["group_id"]) if group not in known]
    return {name: [values[row] for row in kept] for name, values in groups.items()}


class Ring(NamedTuple):
    """Entries of a Flight Recorder, and the group of each."""

    entries: FlightEntries
    groups: list[str | None]


def fill(collectives: Columns, sizes: dict[str, int], rings: Mapping[int, Ring]) -> None:
    """Fill in group and sequence number of every gloo collective whose entry is certain.

    `rings` has the entries enqueued around each window, by the time at which the profiler was switched on.
    """
    recorded = enumerate(zip(collectives["metadata"], collectives["op"], strict=True))
    gloo = [row for row, (metadata, op) in recorded if metadata == "gloo" and op not in NOT_QUEUED]
    for row in gloo:  # an earlier dump may have told something else
        for name in ("group_id", "group_size", "seq"):
            collectives[name][row] = None
        collectives["order_source"][row] = "lane ordinal"
    begins = sorted(rings)
    for place, begin in enumerate(begins):
        last = begins[place + 1] if place + 1 < len(begins) else None
        is_first = place == 0
        rows = [
            row
            for row in gloo
            if (is_first or collectives["start"][row] >= begin) and (last is None or collectives["start"][row] < last)
        ]
        _fill_window(collectives, rows, sizes, rings[begin], begin)
    _count_through(collectives)


def _fill_window(collectives: Columns, rows: list[int], sizes: dict[str, int], ring: Ring, profiled_from: int) -> None:
    def column(name: str) -> list[Any]:
        return [collectives[name][row] for row in rows]

    events = GlooEvents(column("op"), column("bytes_in"), column("lane"), column("start"), column("stop"))
    for row, entry in zip(rows, match(events, ring.entries, profiled_from), strict=True):
        group = ring.groups[entry] if entry >= 0 else None
        if group is not None:
            collectives["group_id"][row] = group
            collectives["group_size"][row] = sizes.get(group)
            collectives["seq"][row] = ring.entries.seq[entry]
            collectives["order_source"][row] = "flight_recorder"


def _count_through(collectives: Columns) -> None:
    seen: Counter[object] = Counter()
    for row in sorted(range(len(collectives["start"])), key=lambda row: collectives["start"][row]):
        key = collectives["group_id"][row] or collectives["lane"][row]
        collectives["ordinal"][row] = seen[key]
        seen[key] += 1
