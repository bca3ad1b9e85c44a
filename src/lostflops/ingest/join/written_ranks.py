"""Rows of some ranks that are already written, read and replaced before the commit."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, pairwise
from pathlib import Path
from typing import Any

from lostflops.ingest.formats.kineto import reader as kineto
from lostflops.store.commit import RANKS_PER_FILE, RunWriter
from lostflops.store.manifest import DataFile
from lostflops.store.parquet import ParquetWriter
from lostflops.store.tables import EVENTS, STEPS, TableSchema

Columns = dict[str, list[Any]]
Files = dict[str, list[DataFile]]


def ranks_with(files: Files, table: TableSchema, source_format: str) -> set[int]:
    return {rank for file in files.get(table.name, ()) if file.format == source_format for rank in file.ranks}


class WrittenRanks:
    """Rows of several ranks at once, so that files of many ranks are read and written only once.

    `files` is changed to name the new parts.
    """

    def __init__(self, run: RunWriter, files: Files, ranks: list[int], writer: ParquetWriter) -> None:
        self._run, self._files, self.ranks, self._writer = run, files, ranks, writer

    def _own(self, table: TableSchema, source_format: str, ranks: list[int]) -> list[DataFile]:
        wanted = set(ranks)
        files = self._files.get(table.name, ())
        return [file for file in files if file.format == source_format and wanted & set(file.ranks)]

    def read(self, table: TableSchema, source_format: str, where: str = "true") -> dict[int, Columns]:
        names = table.column_names()
        found: dict[int, Columns] = {rank: {name: [] for name in names} for rank in self.ranks}
        chosen = f"rank IN ({', '.join(map(str, self.ranks))}) AND {where}"
        for file in self._own(table, source_format, self.ranks):
            rows = self._writer.read(self._run.at(file), chosen)
            for row, rank in enumerate(rows["rank"]):
                for name in names:
                    found[rank][name].append(rows[name][row])
        return found

    def replace(self, table: TableSchema, source_format: str, columns: dict[int, Columns]) -> None:
        """Replace the rows of these ranks and this format."""
        kept: list[DataFile] = []
        replaced = self._own(table, source_format, self.ranks)
        for file in self._files.get(table.name, []):
            rest = self._run.without(self._writer, table.name, file, set(self.ranks)) if file in replaced else file
            if rest is not None:
                kept.append(rest)
        joined = {name: [v for rank in self.ranks for v in columns[rank][name]] for name in table.column_names()}
        if joined["rank"]:
            path = self._unused_path(table, source_format, {file.path for file in kept})
            self._writer.write(table, joined, path)
            ranks = sorted(set(joined["rank"]))
            kept.append(DataFile(path=self._run.relative(path), format=source_format, ranks=ranks))
        self._files[table.name] = kept

    def _unused_path(self, table: TableSchema, source_format: str, used: set[str]) -> Path:
        """Return a path that no kept file has: a file may hold no row of the rank that its name states."""
        folder, stem = self._run.staging / table.name, f"{source_format}-{self.ranks[0]:06d}-completed"
        paths = (folder / f"{stem}-{number}.parquet" for number in count())
        return next(path for path in paths if self._run.relative(path) not in used)

    def profiled_from(self, rank: int) -> list[int]:
        """Return when the profiler was switched on for each window: start of its own span, otherwise its first event.

        Step numbers are consecutive within a window, and not between two windows.
        """
        paths = [self._run.at(file) for file in self._own(EVENTS, kineto.NAME, [rank])]
        begins: list[int] = []
        for after in self._ends_of_windows(rank):
            where = f"rank = {rank} AND start > {after}" if begins else f"rank = {rank}"
            begins.append(self._writer.smallest(paths, "start", where, first_if="kind = 'span'"))
        return begins

    def _ends_of_windows(self, rank: int) -> list[int]:
        """Return when the window before each window ended; 0 for the first."""
        steps = [
            (start, stop, step)
            for file in self._own(STEPS, kineto.NAME, [rank])
            for rows in [self._writer.read(self._run.at(file), f"rank = {rank}")]
            for start, stop, step in zip(rows["start"], rows["stop"], rows["step"], strict=True)
        ]
        return [0, *(one[1] for one, other in pairwise(sorted(steps)) if other[2] != one[2] + 1)]


def in_stretches(run: RunWriter, files: Files, ranks: set[int], complete: Callable[[WrittenRanks], None]) -> None:
    """Complete these ranks, at most `RANKS_PER_FILE` at once."""
    ordered = sorted(ranks)
    writer = ParquetWriter()
    try:
        for first in range(0, len(ordered), RANKS_PER_FILE):
            complete(WrittenRanks(run, files, ordered[first : first + RANKS_PER_FILE], writer))
    finally:
        writer.close()
