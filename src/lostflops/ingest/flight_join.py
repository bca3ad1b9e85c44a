"""A rank's trace and its Flight Recorder dump complete each other.

The trace lists the members of groups, which a gloo dump does not; the dump tells the group and
the sequence number of gloo collectives, which the trace does not. Works on what was written, so
the two files may be ingested together or one after the other, and nothing is read twice.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from lostflops.ingest.flight_dump import GROUPS_UNKNOWN
from lostflops.ingest.gloo_order import FlightEntries, GlooEvents, match
from lostflops.ingest.observations import KINETO_OBSERVATIONS
from lostflops.ingest.readers import flight_recorder, kineto
from lostflops.store.commit import RANKS_PER_FILE, RunWriter
from lostflops.store.manifest import DataFile
from lostflops.store.parquet import ParquetWriter
from lostflops.store.tables import COLLECTIVES, EVENTS, FLIGHT, GROUPS, STATS, Table

Columns = dict[str, list[Any]]
Files = dict[str, list[DataFile]]


def complete_ranks(run: RunWriter, files: Files, ranks: set[int]) -> None:
    """Complete each of `ranks` that has both files; `files` is changed to name the new parts."""
    with_dump = _ranks_with(files, FLIGHT, flight_recorder.NAME)
    with_trace = _ranks_with(files, COLLECTIVES, kineto.NAME) | _ranks_with(files, GROUPS, kineto.NAME)
    both = sorted(ranks & with_dump & with_trace)
    writer = ParquetWriter()
    try:
        for first in range(0, len(both), RANKS_PER_FILE):
            _Completion(run, files, both[first : first + RANKS_PER_FILE], writer).carry_out()
    finally:
        writer.close()


def _ranks_with(files: Files, table: Table, source_format: str) -> set[int]:
    return {rank for file in files.get(table.name, ()) if file.format == source_format for rank in file.ranks}


class _Completion:
    """Some ranks at once, so that files of many ranks are read and written once."""

    def __init__(self, run: RunWriter, files: Files, ranks: list[int], writer: ParquetWriter) -> None:
        self._run, self._files, self._ranks, self._writer = run, files, ranks, writer

    def carry_out(self) -> None:
        flight = self._read(FLIGHT, flight_recorder.NAME)
        trace_groups = self._read(GROUPS, kineto.NAME)
        dump_groups = self._read(GROUPS, flight_recorder.NAME)
        collectives = self._read(COLLECTIVES, kineto.NAME)
        dump_stats = self._read(STATS, flight_recorder.NAME)
        trace_stats = self._read(STATS, kineto.NAME)
        for rank in self._ranks:
            _name_groups(flight[rank], trace_groups[rank], dump_groups[rank])
            dump_groups[rank] = _without(dump_groups[rank], set(trace_groups[rank]["group_id"]))
            unknown = flight[rank]["group_id"].count(None)
            row = (rank, flight_recorder.NAME, "flight_groups_unknown", "missing", unknown, GROUPS_UNKNOWN)
            dump_stats[rank] = _with_stat(dump_stats[rank], row)
            if "gloo" in collectives[rank]["metadata"]:
                sizes = dict(zip(trace_groups[rank]["group_id"], trace_groups[rank]["size"], strict=True))
                _fill(collectives[rank], flight[rank], sizes, self._profiled_from(rank))
                trace_stats[rank] = _with_stat(trace_stats[rank], _groupless(rank, collectives[rank]))
        self._replace(FLIGHT, flight_recorder.NAME, flight)
        self._replace(GROUPS, flight_recorder.NAME, dump_groups)
        self._replace(STATS, flight_recorder.NAME, dump_stats)
        if any("gloo" in columns["metadata"] for columns in collectives.values()):
            self._replace(COLLECTIVES, kineto.NAME, collectives)
            self._replace(STATS, kineto.NAME, trace_stats)

    def _own(self, table: Table, source_format: str, ranks: list[int]) -> list[DataFile]:
        wanted = set(ranks)
        files = self._files.get(table.name, ())
        return [file for file in files if file.format == source_format and wanted & set(file.ranks)]

    def _read(self, table: Table, source_format: str) -> dict[int, Columns]:
        names = table.column_names()
        found: dict[int, Columns] = {rank: {name: [] for name in names} for rank in self._ranks}
        chosen = f"rank IN ({', '.join(map(str, self._ranks))})"
        for file in self._own(table, source_format, self._ranks):
            rows = self._writer.read(self._run.folder / file.path, chosen)
            for row, rank in enumerate(rows["rank"]):
                for name in names:
                    found[rank][name].append(rows[name][row])
        return found

    def _replace(self, table: Table, source_format: str, columns: dict[int, Columns]) -> None:
        """New rows for these ranks and this format in the place of the old ones."""
        kept: list[DataFile] = []
        replaced = self._own(table, source_format, self._ranks)
        for file in self._files.get(table.name, []):
            rest = self._run.without(self._writer, table.name, file, set(self._ranks)) if file in replaced else file
            if rest is not None:
                kept.append(rest)
        joined = {name: [v for rank in self._ranks for v in columns[rank][name]] for name in table.column_names()}
        if joined["rank"]:
            path = self._run.staging / table.name / f"{source_format}-{self._ranks[0]:06d}-completed.parquet"
            self._writer.write(table, joined, path)
            ranks = sorted(set(joined["rank"]))
            kept.append(DataFile(path=self._run.relative(path), format=source_format, ranks=ranks))
        self._files[table.name] = kept

    def _profiled_from(self, rank: int) -> int:
        """When the profiler was switched on: its own span, else the first thing it saw."""
        paths = [self._run.folder / file.path for file in self._own(EVENTS, kineto.NAME, [rank])]
        return self._writer.smallest(paths, "start", f"rank = {rank}", first_if="kind = 'span'")


def _name_groups(flight: Columns, trace_groups: Columns, dump_groups: Columns) -> None:
    ids = dict(zip(dump_groups["name"], dump_groups["group_id"], strict=True))
    ids |= dict(zip(trace_groups["name"], trace_groups["group_id"], strict=True))
    flight["group_id"] = [
        known or ids.get(name) for known, name in zip(flight["group_id"], flight["group_name"], strict=True)
    ]


def _groupless(rank: int, collectives: Columns) -> tuple[Any, ...]:
    pairs = zip(collectives["group_id"], collectives["metadata"], strict=True)
    count = sum(group is None and metadata == "gloo" for group, metadata in pairs)
    what = "collectives_without_group"
    effect, reason = KINETO_OBSERVATIONS[what]
    return rank, kineto.NAME, what, effect, count, reason


def _with_stat(stats: Columns, row: tuple[Any, ...]) -> Columns:
    """The observations with this one in the place of an earlier one; a count of 0 removes it."""
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


def _fill(collectives: Columns, flight: Columns, sizes: dict[str, int], profiled_from: int) -> None:
    """Group and sequence number for every gloo collective whose entry is certain."""
    rows = [row for row, metadata in enumerate(collectives["metadata"]) if metadata == "gloo"]
    for row in rows:  # an earlier dump may have told something else
        for name in ("group_id", "group_size", "seq"):
            collectives[name][row] = None
        collectives["order_source"][row] = "lane ordinal"

    def column(name: str) -> list[Any]:
        return [collectives[name][row] for row in rows]

    events = GlooEvents(column("op"), column("bytes_in"), column("lane"), column("start"), column("stop"))
    names = ("record", "name", "op", "bytes_in", "group_name", "seq", "created")
    found = match(events, FlightEntries(*(flight[name] for name in names)), profiled_from)
    for row, entry in zip(rows, found, strict=True):
        if entry >= 0 and flight["group_id"][entry] is not None:
            group = flight["group_id"][entry]
            collectives["group_id"][row] = group
            collectives["group_size"][row] = sizes.get(group)
            collectives["seq"][row] = flight["seq"][entry]
            collectives["order_source"][row] = "flight_recorder"
    seen: Counter[object] = Counter()
    for row in sorted(range(len(collectives["start"])), key=lambda row: collectives["start"][row]):
        key = collectives["group_id"][row] or collectives["lane"][row]
        collectives["ordinal"][row] = seen[key]
        seen[key] += 1
