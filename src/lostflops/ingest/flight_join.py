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
from lostflops.store.commit import RunWriter
from lostflops.store.manifest import DataFile
from lostflops.store.parquet import ParquetWriter
from lostflops.store.tables import COLLECTIVES, FLIGHT, GROUPS, STATS, Table

Columns = dict[str, list[Any]]
Files = dict[str, list[DataFile]]


def complete_ranks(run: RunWriter, files: Files, ranks: set[int]) -> None:
    """Complete each of `ranks` that has both files; `files` is changed to name the new parts."""
    with_dump = _ranks_with(files, FLIGHT, flight_recorder.NAME)
    with_trace = _ranks_with(files, COLLECTIVES, kineto.NAME) | _ranks_with(files, GROUPS, kineto.NAME)
    writer = ParquetWriter()
    try:
        for rank in sorted(ranks & with_dump & with_trace):
            _Completion(run, files, rank, writer).carry_out()
    finally:
        writer.close()


def _ranks_with(files: Files, table: Table, source_format: str) -> set[int]:
    return {rank for file in files.get(table.name, ()) if file.format == source_format for rank in file.ranks}


class _Completion:
    def __init__(self, run: RunWriter, files: Files, rank: int, writer: ParquetWriter) -> None:
        self._run, self._files, self._rank, self._writer = run, files, rank, writer

    def carry_out(self) -> None:
        flight = self._read(FLIGHT, flight_recorder.NAME)
        trace_groups = self._read(GROUPS, kineto.NAME)
        dump_groups = self._read(GROUPS, flight_recorder.NAME)
        ids = dict(zip(dump_groups["name"], dump_groups["group_id"], strict=True))
        ids |= dict(zip(trace_groups["name"], trace_groups["group_id"], strict=True))
        flight["group_id"] = [
            known or ids.get(name) for known, name in zip(flight["group_id"], flight["group_name"], strict=True)
        ]
        self._replace(FLIGHT, flight_recorder.NAME, flight)
        self._replace(GROUPS, flight_recorder.NAME, _without(dump_groups, set(trace_groups["group_id"])))
        unknown = flight["group_id"].count(None)
        self._correct_stat(flight_recorder.NAME, "flight_groups_unknown", unknown, ("missing", GROUPS_UNKNOWN))
        collectives = self._read(COLLECTIVES, kineto.NAME)
        if "gloo" in collectives["metadata"]:
            sizes = dict(zip(trace_groups["group_id"], trace_groups["size"], strict=True))
            _fill(collectives, flight, sizes, self._profiled_from())
            self._replace(COLLECTIVES, kineto.NAME, collectives)
            groups, metadata = collectives["group_id"], collectives["metadata"]
            without = sum(g is None and m == "gloo" for g, m in zip(groups, metadata, strict=True))
            what = "collectives_without_group"
            self._correct_stat(kineto.NAME, what, without, KINETO_OBSERVATIONS[what])

    def _own(self, table: Table, source_format: str) -> list[DataFile]:
        return [f for f in self._files.get(table.name, ()) if f.format == source_format and self._rank in f.ranks]

    def _read(self, table: Table, source_format: str) -> Columns:
        columns: Columns = {name: [] for name in table.column_names()}
        for file in self._own(table, source_format):
            rows = self._writer.read(self._run.folder / file.path, f"rank = {self._rank}")
            for name, values in rows.items():
                columns[name].extend(values)
        return columns

    def _replace(self, table: Table, source_format: str, columns: Columns) -> None:
        """New rows for this rank and format in the place of the old ones."""
        kept: list[DataFile] = []
        for file in self._files.get(table.name, []):
            if file.format != source_format or self._rank not in file.ranks:
                kept.append(file)
            elif (rest := self._run.without(self._writer, table.name, file, {self._rank})) is not None:
                kept.append(rest)
        if columns["rank"]:
            path = self._run.staging / table.name / f"{source_format}-{self._rank:06d}-completed.parquet"
            self._writer.write(table, columns, path)
            kept.append(DataFile(path=self._run.relative(path), format=source_format, ranks=[self._rank]))
        self._files[table.name] = kept

    def _correct_stat(self, source_format: str, what: str, count: int, meaning: tuple[str, str]) -> None:
        stats = self._read(STATS, source_format)
        others = [row for row, name in enumerate(stats["what"]) if name != what]
        corrected = {name: [values[row] for row in others] for name, values in stats.items()}
        if count:
            row = (self._rank, source_format, what, meaning[0], count, meaning[1])
            for name, value in zip(STATS.column_names(), row, strict=True):
                corrected[name].append(value)
        self._replace(STATS, source_format, corrected)

    def _profiled_from(self) -> int:
        """When the profiler was switched on: its own span, else the first thing it saw."""
        spans = [self._run.folder / file.path for file in self._own_events()]
        return self._writer.smallest(spans, "start", f"rank = {self._rank}", first_if="kind = 'span'")

    def _own_events(self) -> list[DataFile]:
        return [f for f in self._files.get("events", ()) if f.format == kineto.NAME and self._rank in f.ranks]


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
