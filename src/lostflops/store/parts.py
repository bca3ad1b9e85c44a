"""Rows of many ranks and tables on their way to disk: collected, and written as few files."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np

from lostflops.store.checksums import checksum_of_file
from lostflops.store.parquet import ColumnData, ConstantColumn, ParquetWriter, TextColumn
from lostflops.store.tables import TableSchema

PIECE_ROWS: Final = 100_000
"""Most rows in a file, not counting the last batch that was put into it."""


class PartFile(msgspec.Struct, frozen=True):
    """A file that was written."""

    table: str
    name: str
    """Name in the folder of the table."""
    ranks: list[int]
    bytes: int
    crc32: int


class _TableBatch(NamedTuple):
    rank: int
    rows: int
    columns: Mapping[str, ColumnData]


class _Adopted(NamedTuple):
    file: Path
    rank: int
    is_current: bool


class PartWriter:
    """Takes rows, rank by rank; `finish` writes what is left and returns all files.

    Rows of one table that fill the same columns go to the same file.
    """

    def __init__(self, writer: ParquetWriter, folder: Path, stem: str) -> None:
        self._writer = writer
        self._folder = folder
        self._stem = stem
        self._pending: defaultdict[tuple[str, ...], list[_TableBatch]] = defaultdict(list)
        self._pending_rows: Counter[tuple[str, ...]] = Counter()
        self._tables: dict[str, TableSchema] = {}
        self._files: list[PartFile] = []
        self._new = 0
        self.puts = 0
        """How many times rows were put or adopted."""
        self._adopted: defaultdict[str, list[_Adopted]] = defaultdict(list)

    def put(self, table: TableSchema, rank: int, rows: int, columns: Mapping[str, ColumnData]) -> None:
        if rows == 0:
            return
        self.puts += 1
        self._tables[table.name] = table
        key = (table.name, *sorted(columns))
        self._pending[key].append(_TableBatch(rank, rows, columns))
        self._pending_rows[key] += rows
        if self._pending_rows[key] >= PIECE_ROWS:
            self._write(key)

    def new_file(self, table: TableSchema) -> Path:
        """Return a path for rows that come as a file; they are not part of the run until they are adopted."""
        self._new += 1
        path = self._folder / table.name / f"{self._stem}-new-{self._new}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def adopt(self, files: Sequence[tuple[TableSchema, Path]], rank: int, rows: Mapping[str, int]) -> None:
        """Take rows that another program wrote to a `new_file`; `rows` is the number of rows of each table.

        Raise ValueError or duckdb.Error if they are anything else than rows of their tables and this rank.
        """
        found = self._writer.inspect(files, rank)
        counted: Counter[str] = Counter()
        for (table, _), one in zip(files, found, strict=True):
            counted[table.name] += one.rows
        if counted != Counter({name: count for name, count in rows.items() if count}):
            raise ValueError("the number of rows is not as declared")
        self.puts += 1
        for (table, file), one in zip(files, found, strict=True):
            self._tables[table.name] = table
            self._adopted[table.name].append(_Adopted(file, rank, one.is_current))

    def finish(self) -> list[PartFile]:
        for key in list(self._pending):
            self._write(key)
        for name, members in self._adopted.items():
            self._take(self._tables[name], members)
        self._adopted.clear()
        return self._files

    def discard(self) -> None:
        """Remove everything that was written, whole or not; the writer must not be used afterwards."""
        self._pending.clear()
        self._adopted.clear()
        self._files.clear()
        for file in self._folder.glob(f"*/{self._stem}-*.parquet"):
            file.unlink(missing_ok=True)

    def _take(self, table: TableSchema, members: list[_Adopted]) -> None:
        """Keep a rank's files as they are; merge files of several ranks, or without newer columns."""
        files = [member.file for member in members]
        ranks = sorted({member.rank for member in members})
        if len(ranks) > 1 or not all(member.is_current for member in members):
            merged = self.new_file(table)
            self._writer.merge_as(table, files, merged)
            for file in files:
                file.unlink()
            files = [merged]
        self._files += [measure_part(table.name, file, ranks) for file in files]

    def _write(self, key: tuple[str, ...]) -> None:
        batches = self._pending.pop(key)
        del self._pending_rows[key]
        table = self._tables[key[0]]
        columns = {name: _concat_columns([batch.columns[name] for batch in batches], batches) for name in key[1:]}
        columns["rank"] = _concat_columns([ConstantColumn(batch.rank) for batch in batches], batches)
        name = f"{self._stem}-{len(self._files)}.parquet"
        path = self._folder / table.name / name
        self._writer.write(table, columns, path)
        ranks = sorted({batch.rank for batch in batches})
        self._files.append(measure_part(table.name, path, ranks))


def measure_part(table: str, file: Path, ranks: list[int]) -> PartFile:
    """Return a file that was written, with its size and checksum."""
    return PartFile(table, file.name, ranks, file.stat().st_size, checksum_of_file(file))


def _concat_columns(columns: list[ColumnData], batches: list[_TableBatch]) -> ColumnData:
    first = columns[0]
    if len(columns) == 1 or (isinstance(first, ConstantColumn) and all(column == first for column in columns)):
        return first
    if isinstance(first, TextColumn):
        texts = [column for column in columns if isinstance(column, TextColumn)]
        assert all(column.values is first.values for column in texts), "one vocabulary for all ranks of a file"
        return TextColumn(np.concatenate([column.codes for column in texts]), first.values)
    if isinstance(first, np.ndarray):
        return np.concatenate(columns)  # type: ignore[arg-type]
    joined: list[object] = []
    for column, batch in zip(columns, batches, strict=True):
        joined.extend([column.value] * batch.rows if isinstance(column, ConstantColumn) else column)  # type: ignore[arg-type]
    return joined
