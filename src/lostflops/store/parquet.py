"""Parquet files, each of one table, written from columns in memory through DuckDB.

Nulls are passed as the smallest integer of a column's type, as not-a-number, or as code 0 of a text column; DuckDB
turns them into SQL nulls while it writes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

from lostflops.core.limits import MOST_LANES
from lostflops.store.places import naming
from lostflops.store.tables import EVENTS, Column, TableSchema

_GLOB = re.compile(r"([*?\[])")
# Version 2 encodings (delta, byte-stream split) with light zstd: smaller and faster to write than snappy.
_OPTIONS = "FORMAT parquet, PARQUET_VERSION v2, COMPRESSION zstd, COMPRESSION_LEVEL 1"


FARTHEST = 3 << 61
"""Limit of a time in ns; readers accept stamps, bases that they count from, and durations up to 1 << 61 each."""
_OF_EVERY_EVENT = ("event", "lane", "start", "dur")
_LANE_NUMBERS = ("lane", "from_lane", "to_lane")
_DTYPES = {"INTEGER": np.int64, "BIGINT": np.int64, "DOUBLE": np.float64, "BOOLEAN": np.bool_}


@dataclass(frozen=True, slots=True)
class TextColumn:
    """Texts by code: `values[codes[row]]`, where `values[0]` is null."""

    codes: npt.NDArray[np.uint32]
    values: Sequence[str | None]


@dataclass(frozen=True, slots=True)
class ConstantColumn:
    """The same value in every row; None is null."""

    value: int | str | None


@dataclass(frozen=True, slots=True)
class Foreign:
    """A file that another program wrote."""

    rows: int
    is_current: bool
    """Whether it has all columns of its table, in their order."""


ColumnData = npt.NDArray[Any] | TextColumn | ConstantColumn | Sequence[Any]


_idle: list[duckdb.DuckDBPyConnection] = []
"""Connections to use again: to open one takes 30 ms, as long as writing a small rank."""
_MOST_IDLE = 2
_WORTH_AN_ENUM = 10_000
"""Rows from which texts are written as an enumeration: then DuckDB does not look up each of them in a dictionary."""


class ParquetWriter:
    """One DuckDB connection that writes files, with one thread: many writers run side by side."""

    def __init__(self) -> None:
        try:
            self._connection = _idle.pop()
        except IndexError:
            self._connection = _connect_duckdb()
        self._values: dict[int, str] = {}

    def write(self, table: TableSchema, columns: Mapping[str, ColumnData], path: Path) -> None:
        """Write a file and make it durable; columns that are not passed are null."""
        unknown = set(columns) - set(table.column_names())
        assert not unknown, f"{table.name} has no columns {sorted(unknown)}"
        arrays: dict[str, npt.NDArray[Any]] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            columns = self._with_used_texts(columns)
            selected = ", ".join(
                f"{self._expression(column, columns.get(column.name), arrays)} AS {column.name}"
                for column in table.columns
            )
            with self._known_as("arrays", arrays):
                self._connection.execute(
                    f"COPY (SELECT {selected} FROM arrays) TO '{_escape_quotes(path)}' ({_OPTIONS})"
                )
        finally:
            self._drop_texts()
        _make_durable(path)

    def merge(self, parts: Sequence[Path], path: Path, where: str = "true", columns: str = "*") -> None:
        """Write rows of several files of one table, in their order, as one file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = f"SELECT {columns} FROM {scan(parts, union_by_name=True)} WHERE {where}"
        self._connection.execute(f"COPY ({rows}) TO '{_escape_quotes(path)}' ({_OPTIONS})")
        _make_durable(path)

    def replace_column(self, part: Path, path: Path, column: str, values: npt.NDArray[Any]) -> None:
        """Write the rows of a file, in their order, with other values in a column."""
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = f"SELECT part.* REPLACE (fresh.value AS {column}) FROM {scan([part])} AS part POSITIONAL JOIN fresh"
        with self._known_as("fresh", {"value": values}):
            self._connection.execute(f"COPY ({rows}) TO '{_escape_quotes(path)}' ({_OPTIONS})")
        _make_durable(path)

    def merge_as(self, table: TableSchema, parts: Sequence[Path], path: Path) -> None:
        """Write rows of several files as one file with all columns of the table; null if no file has a column."""
        present = {name for types in self._types(parts).values() for name, _ in types}
        chosen = (
            column.name if column.name in present else f"CAST(NULL AS {column.type}) AS {column.name}"
            for column in table.columns
        )
        self.merge(parts, path, columns=", ".join(chosen))

    def inspect(self, files: Sequence[tuple[TableSchema, Path]], rank: int) -> list[Foreign]:
        """Check files of another program; raise ValueError unless they have only rows of their table and this rank."""
        types = self._types([path for _, path in files])
        for table, path in files:
            _check_columns(table, types[str(path)])
        # `xor` keeps DuckDB from answering by statistics, which a file may state falsely.
        counts = "count(*), count(xor(rank, 0)), min(xor(rank, 0)), max(xor(rank, 0))"
        queries = (
            f"SELECT {number}, {counts}, count(*) FILTER ({_strange(table, types[str(path)])}) FROM {scan([path])}"
            for number, (table, path) in enumerate(files)
        )
        found = sorted(self._connection.execute(" UNION ALL ".join(queries)).fetchall()) if files else []
        for (table, _), (_, rows, known, lowest, highest, strange) in zip(files, found, strict=True):
            if (known, lowest, highest) != (rows, rank, rank):
                raise ValueError(f"{table.name} has rows of a rank other than {rank}")
            if strange:
                raise ValueError(f"{table.name} has {strange} rows without a valid time or lane")
        return [
            Foreign(counted[1], tuple(name for name, _ in types[str(path)]) == table.column_names())
            for (table, path), counted in zip(files, found, strict=True)
        ]

    def _types(self, paths: Sequence[Path]) -> dict[str, list[tuple[str, str]]]:
        """Return names and types of columns by file; a nested column has a type that no table has."""
        names = _join_paths(paths)
        query = f"SELECT file_name, name, duckdb_type FROM parquet_schema([{names}])"
        found: dict[str, list[tuple[str, str]]] = {str(path): [] for path in paths}
        for file, name, kind in self._connection.execute(query).fetchall() if paths else ():
            found[file].append((name, str(kind)))
        return {file: columns[1:] for file, columns in found.items()}  # the first is the root

    def read(self, path: Path, where: str = "true", columns: str = "*") -> dict[str, list[Any]]:
        """Return rows of a small file as lists, nulls as None."""
        relation = self._connection.sql(f"SELECT {columns} FROM {scan([path])} WHERE {where}")
        names = relation.columns
        rows = relation.fetchall()
        return {name: [row[i] for row in rows] for i, name in enumerate(names)}

    def smallest(self, paths: Sequence[Path], column: str, where: str, first_if: str) -> int:
        """Return the smallest value of a column among rows that satisfy `first_if`, otherwise among all; 0 if none."""
        query = f"SELECT min({column}) FILTER ({first_if}), min({column}) FROM {scan(paths)} WHERE {where}"
        preferred, any_row = self._connection.execute(query).fetchall()[0] if paths else (None, None)
        return int(preferred if preferred is not None else any_row or 0)

    def close(self) -> None:
        """Close the writer, or keep its connection for the next one; it must not be used afterwards."""
        connection = self._connection
        del self._connection
        if len(_idle) < _MOST_IDLE and _is_usable(connection):
            _idle.append(connection)
        else:
            connection.close()

    @contextmanager
    def _known_as(self, name: str, columns: Mapping[str, npt.NDArray[Any]]) -> Iterator[None]:
        self._connection.register(name, columns)
        try:
            yield
        finally:
            self._connection.unregister(name)

    def _expression(self, column: Column, data: ColumnData | None, arrays: dict[str, npt.NDArray[Any]]) -> str:
        if isinstance(data, ConstantColumn):
            data = None if data.value is None else data
        if data is None:
            return f"CAST(NULL AS {column.type})"
        if isinstance(data, ConstantColumn):
            return f"CAST({_literal(data.value)} AS {column.type})"
        if isinstance(data, TextColumn):
            if not data.codes.any():
                return f"CAST(NULL AS {column.type})"
            arrays[column.name] = data.codes
            return f"(SELECT texts FROM {self._text_table(data.values, data.codes.size)})[{column.name} + 1]"
        if not isinstance(data, np.ndarray):
            return self._list(column, data, arrays)
        arrays[column.name] = data
        if data.dtype.kind == "f":
            return f"CAST(nullif({column.name}, 'nan'::DOUBLE) AS {column.type})"
        if data.dtype.kind == "i":
            return f"CAST(nullif({column.name}, {np.iinfo(data.dtype).min}) AS {column.type})"
        return f"CAST({column.name} AS {column.type})"

    @staticmethod
    def _list(column: Column, values: Sequence[Any], arrays: dict[str, npt.NDArray[Any]]) -> str:
        name, dtype = column.name, _DTYPES.get(column.type)
        if dtype is None:
            arrays[name] = _objects(values)
            return f"CAST({name} AS {column.type})"
        arrays[name] = np.array([0 if value is None else value for value in values], dtype)
        arrays[f"{name}_known"] = np.array([value is not None for value in values], np.bool_)
        return f"CASE WHEN {name}_known THEN CAST({name} AS {column.type}) END"

    @staticmethod
    def _with_used_texts(columns: Mapping[str, ColumnData]) -> Mapping[str, ColumnData]:
        """Return the columns with only those texts that some row has; columns that shared their texts still do."""
        texts = {name: data for name, data in columns.items() if isinstance(data, TextColumn)}
        used = {id(data.values): np.zeros(len(data.values), np.bool_) for data in texts.values()}
        for data in texts.values():
            used[id(data.values)][data.codes] = True
        fewer: dict[int, tuple[npt.NDArray[np.uint32], Sequence[str | None]]] = {}
        for data in texts.values():
            if id(data.values) not in fewer:
                flags = used[id(data.values)]
                flags[0] = True
                kept = [data.values[code] for code in np.flatnonzero(flags).tolist()]
                fewer[id(data.values)] = (np.cumsum(flags) - 1).astype(np.uint32), kept
        chosen = {name: fewer[id(data.values)] for name, data in texts.items()}
        return {**columns, **{name: TextColumn(new[texts[name].codes], kept) for name, (new, kept) in chosen.items()}}

    def _text_table(self, values: Sequence[str | None], rows: int) -> str:
        """Return a table with the texts as one list."""
        name = self._values.get(id(values))
        if name is None:
            name = f"texts_{len(self._values)}"
            self._values[id(values)] = name
            with self._known_as("incoming", {"text": _objects(values), "position": np.arange(len(values))}):
                kind = "VARCHAR"
                if rows > _WORTH_AN_ENUM and len(values) > 1:
                    kind = f"{name}_enum"
                    known = "SELECT DISTINCT text::VARCHAR FROM incoming WHERE text IS NOT NULL"
                    self._connection.execute(f"CREATE TYPE {kind} AS ENUM ({known})")
                self._connection.execute(
                    f"CREATE TEMP TABLE {name} AS SELECT list(text::{kind} ORDER BY position) AS texts FROM incoming"
                )
        return name

    def _drop_texts(self) -> None:
        for name in self._values.values():
            self._connection.execute(f"DROP TABLE IF EXISTS {name}")
            self._connection.execute(f"DROP TYPE IF EXISTS {name}_enum")
        self._values.clear()


def _connect_duckdb() -> duckdb.DuckDBPyConnection:
    # Files come and go under the same names, so that nothing of them may be kept.
    return duckdb.connect(
        config={
            "threads": 1,
            "memory_limit": "256MB",
            "preserve_insertion_order": True,
            "enable_external_file_cache": False,
        }
    )


def _is_usable(connection: duckdb.DuckDBPyConnection) -> bool:
    """Return False after a fatal error, or after an interrupt before all of a result was fetched."""
    try:
        connection.execute("SELECT 1").fetchall()
    except duckdb.Error:
        return False
    return True


def literal_glob(path: str) -> str:
    """Return a pattern that matches only this path."""
    return _GLOB.sub(r"[\1]", path)


def scan(paths: Sequence[Path], union_by_name: bool = False) -> str:
    """Return SQL that reads exactly these files, whatever characters their names have."""
    return f"read_parquet([{_join_paths(paths)}], union_by_name={'true' if union_by_name else 'false'})"


def _join_paths(paths: Sequence[Path]) -> str:
    return ", ".join("'" + literal_glob(_escape_quotes(path)) + "'" for path in paths)


def _check_columns(table: TableSchema, found: Sequence[tuple[str, str]]) -> None:
    declared = {column.name: column.type for column in table.columns}
    for name, kind in found:
        if declared.get(name) != kind:
            raise ValueError(f"{table.name} has no column {name[:80]!r} of type {kind[:80]}")
    names = [name for name, _ in found]
    if "rank" not in names or len(set(names)) < len(names):
        raise ValueError(f"{table.name} has no column of ranks, or a column twice")


def _strange(table: TableSchema, found: Sequence[tuple[str, str]]) -> str:
    """Return SQL for rows that no reader writes: events without a time, times with sums that overflow, huge lanes."""
    names = {name for name, _ in found}
    doubts = ["false"]
    for column in table.columns:
        if column.name in names and (column.type, column.unit) == ("BIGINT", "ns"):
            lowest = 0 if column.name == "dur" else -FARTHEST
            doubts.append(f"xor({column.name}, 0) NOT BETWEEN {lowest} AND {FARTHEST}")
        if column.name in names and column.name in _LANE_NUMBERS:
            doubts.append(f"xor({column.name}, 0) NOT BETWEEN 0 AND {MOST_LANES}")
    if table is EVENTS:
        doubts += [f"xor({name}, 0) IS NULL" if name in names else "true" for name in _OF_EVERY_EVENT]
    return " OR ".join(doubts)


def _objects(values: Sequence[Any]) -> npt.NDArray[Any]:
    array = np.empty(len(values), object)
    array[:] = list(values)
    return array


def _escape_quotes(path: Path) -> str:
    return str(path).replace("'", "''")


def _literal(value: int | str | None) -> str:
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"


def _make_durable(path: Path) -> None:
    with naming(path), path.open("rb") as file:
        os.fsync(file.fileno())
