"""Facts that captures show only with each other or with traces: attempt numbers, and groups that a trace lists too.

It works on written rows, before the commit, as `join.flight` does. Ranks whose numbers were right are left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from lostflops.ingest.formats.capture import reader as capture
from lostflops.ingest.join.attempts import SessionSpan, number
from lostflops.store.commit import RunWriter
from lostflops.store.connections import connect
from lostflops.store.manifest import DataFile
from lostflops.store.parquet import ParquetWriter, scan
from lostflops.store.tables import ATTEMPTS, ENQUEUES, GROUPS, JOB, STEPS, TIMINGS, TableSchema

Files = dict[str, list[DataFile]]
Row = dict[str, Any]
Numbers = Mapping[tuple[int, int], int]
"""New number of an attempt, by rank and its number so far."""
_BY_ATTEMPT: Final = (TIMINGS, ENQUEUES, JOB)


def number_attempts(run: RunWriter, files: Files) -> None:
    """Give attempts the same numbers on all ranks; `files` is changed to name the new parts."""
    writer = ParquetWriter()
    try:
        _Join(run, files, writer).number_attempts()
    finally:
        writer.close()


def drop_known_groups(run: RunWriter, files: Files) -> None:
    """Keep each group once, the trace's version; `files` is changed to name the new parts."""
    writer = ParquetWriter()
    try:
        _Join(run, files, writer).drop_known_groups()
    finally:
        writer.close()


def attempts_of_traces(run: RunWriter, files: Files) -> list[tuple[int, int]]:
    """Return rank and attempt of each trace with steps in an attempt of its rank.

    The list is empty if there was only one attempt.
    """
    paths = {table: run.all_at(files.get(table.name, [])) for table in (ATTEMPTS, STEPS)}
    if not all(paths.values()):
        return []
    with connect() as connection:
        return connection.sql(
            f"""SELECT s.rank, max(a.attempt) FROM {scan(paths[STEPS], union_by_name=True)} s
                JOIN {scan(paths[ATTEMPTS], union_by_name=True)} a
                ON s.rank = a.rank AND s.start BETWEEN a.start AND a.stop
                WHERE (SELECT count(DISTINCT attempt) FROM {scan(paths[ATTEMPTS], union_by_name=True)}) > 1
                GROUP BY s.rank ORDER BY s.rank"""
        ).fetchall()


class _Join:
    def __init__(self, run: RunWriter, files: Files, writer: ParquetWriter) -> None:
        self._run, self._files, self._writer = run, files, writer

    def number_attempts(self) -> None:
        rows = self._rows(ATTEMPTS)
        numbers = number(_spans(rows))
        changes = {
            (row["rank"], row["attempt"]): numbers[row["rank"], row["session"]]
            for row in rows
            if row["attempt"] != numbers[row["rank"], row["session"]]
        }
        if not changes:
            return
        for row in rows:
            row["attempt"] = numbers[row["rank"], row["session"]]
        self._write(ATTEMPTS, _merge_sessions(rows))
        ranks = {rank for rank, _ in changes}
        for table in _BY_ATTEMPT:
            self._files[table.name] = [
                self._renumber(table, place, file, changes, ranks)
                for place, file in enumerate(self._files.get(table.name, []))
            ]

    def drop_known_groups(self) -> None:
        rows = self._rows(GROUPS)
        ranks = {row["rank"] for row in rows}
        listed = [file for file in self._files.get(GROUPS.name, []) if ranks & set(file.ranks)]
        others = [file for file in listed if file.format != capture.NAME]
        known = {
            (rank, group)
            for file in others
            for found in [self._writer.read(self._run.at(file))]
            for rank, group in zip(found["rank"], found["group_id"], strict=True)
        }
        kept = [row for row in rows if (row["rank"], row["group_id"]) not in known]
        if len(kept) < len(rows):
            self._write(GROUPS, kept)

    def _rows(self, table: TableSchema) -> list[Row]:
        rows: list[Row] = []
        for file in self._files.get(table.name, []):
            if file.format == capture.NAME:
                columns = self._writer.read(self._run.at(file))
                names = [name for name in table.column_names() if name in columns]
                rows += [dict(zip(names, values, strict=True)) for values in zip(*map(columns.get, names), strict=True)]
        return rows

    def _write(self, table: TableSchema, rows: list[Row]) -> None:
        """Write these rows in place of everything that captures have for the table."""
        files = [file for file in self._files.get(table.name, []) if file.format != capture.NAME]
        if rows:
            path = self._run.staging / table.name / f"{capture.NAME}-joined.parquet"
            columns = {name: [row.get(name) for row in rows] for name in table.column_names()}
            self._writer.write(table, columns, path)
            ranks = sorted({row["rank"] for row in rows})
            files.append(DataFile(path=self._run.relative(path), format=capture.NAME, ranks=ranks))
        self._files[table.name] = files

    def _renumber(self, table: TableSchema, place: int, file: DataFile, changes: Numbers, ranks: set[int]) -> DataFile:
        """Return the file with the new numbers; `ranks` are those with any."""
        if file.format != capture.NAME or ranks.isdisjoint(file.ranks):
            return file
        rows = self._writer.read(self._run.at(file), columns="rank, attempt")
        attempts = [changes.get(key, key[1]) for key in zip(rows["rank"], rows["attempt"], strict=True)]
        path = self._run.staging / table.name / f"{capture.NAME}-numbered-{place:06d}.parquet"
        self._writer.replace_column(self._run.at(file), path, "attempt", np.array(attempts, np.int32))
        return DataFile(path=self._run.relative(path), format=file.format, ranks=file.ranks)


def _spans(rows: list[Row]) -> list[SessionSpan]:
    return [
        SessionSpan(
            row["rank"],
            row["session"],
            row["world_size"],
            row["restart"],
            row["start"] or 0,
            row["stop"] or 0,
            row.get("host"),
        )
        for row in _merge_sessions(rows)
    ]


def _merge_sessions(rows: list[Row]) -> list[Row]:
    """Return one row per session, even if parts of it are in other files."""
    sessions: dict[tuple[int, str], Row] = {}
    for row in rows:
        one = sessions.setdefault((row["rank"], row["session"]), dict(row))
        if one != row:
            for name in ("host", "world_size", "local_rank", "restart"):
                one[name] = one[name] if one.get(name) is not None else row.get(name)
            one["start"] = min((time for time in (one["start"], row["start"]) if time is not None), default=None)
            one["stop"] = max((time for time in (one["stop"], row["stop"]) if time is not None), default=None)
            one["ended"] = one["ended"] or row["ended"]
            one["records"] += row["records"]
            one["dropped"] = max(one["dropped"], row["dropped"])
    return sorted(sessions.values(), key=lambda row: (row["rank"], row["attempt"]))
