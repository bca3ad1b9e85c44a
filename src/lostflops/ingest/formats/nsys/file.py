"""Tables of an Nsight Systems SQLite export: probed before they are read, then read in batches of integers.

Nsight Systems makes tables only if something was recorded, and columns differ between its versions. Nothing of the file
is executed: views, virtual tables and triggers are skipped, and a value that is not an integer reads as null.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lostflops.core.errors import BrokenSource
from lostflops.ingest.common.byte_stream import ByteStream
from lostflops.store.places import naming

MAGIC: Final = b"SQLite format 3\0"
ROWS_AT_ONCE: Final = 50_000
_LONGEST_CELL: Final = 1 << 24
_LONGEST_TEXT: Final = 1 << 16
_NULL_IN_SQL: Final = "(-9223372036854775807 - 1)"
_INSTRUCTIONS_AT_ONCE: Final = 1_000_000
_INSTRUCTIONS_PER_BYTE: Final = 100
"""Limit of a query: reading a row of twenty bytes needs about two hundred instructions.

Damaged pages that point to each other never end.
"""
_DAMAGE: Final = (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeDecodeError)
"""The last is raised in place of an error whose message quotes damaged names."""

Rows = dict[str, npt.NDArray[np.int64]]
"""Columns of some rows of one table; nulls, and values that are not integers, are `NULL`."""


class NsysFile:
    """An open export; every read may find damage, which raises `BrokenSource`."""

    def __init__(self, connection: sqlite3.Connection, path: Path, size: int) -> None:
        self._connection, self._path = connection, path
        self._patience = 1 + size * _INSTRUCTIONS_PER_BYTE // _INSTRUCTIONS_AT_ONCE
        self._columns: dict[str, frozenset[str]] = {}
        found = self.rows("select name, coalesce(sql, '') from sqlite_master where type = 'table'")
        for name, statement in found:
            if isinstance(name, str) and str(statement).lstrip().upper().startswith("CREATE TABLE"):
                own = self.rows("select name from pragma_table_info(?)", name)
                self._columns[name] = frozenset(column for (column,) in own if isinstance(column, str))

    @property
    def tables(self) -> frozenset[str]:
        return frozenset(self._columns)

    def columns(self, table: str) -> frozenset[str]:
        return self._columns.get(table, frozenset())

    def rows(self, query: str, *values: str) -> list[tuple[object, ...]]:
        """Return all rows of a query that returns few."""
        return [tuple(map(_decode_cell, row)) for batch in self.fetch_batches(query, *values) for row in batch]

    def batches(self, table: str, wanted: Sequence[str], needed: Sequence[str], where: str = "true") -> Iterator[Rows]:
        """Yield the wanted integer columns of a table, some rows at a time; columns that it lacks are all null."""
        if not self.holds(table, needed):
            return
        picked = ", ".join(self.integer(table, name) for name in wanted)
        for batch in self.fetch_batches(f"select {picked} from {table} where {where}"):
            yield integer_columns(wanted, batch)

    def holds(self, table: str, needed: Sequence[str]) -> bool:
        """Return whether the table exists; raise if it lacks columns without which it cannot be read."""
        lacking = [name for name in needed if name not in self.columns(table)]
        if lacking and table in self._columns:
            raise BrokenSource(
                f"{self._path}: table {table} lacks {', '.join(lacking)}. Export the report again with a newer "
                "Nsight Systems: nsys export --type sqlite REPORT.nsys-rep"
            )
        return table in self._columns

    def integer(self, table: str, column: str) -> str:
        """Return SQL that gives an integer for any value in the column."""
        if column not in self.columns(table):
            return _NULL_IN_SQL
        quoted = f'{table}."{column}"'
        return f"case typeof({quoted}) when 'integer' then {quoted} else {_NULL_IN_SQL} end"

    def texts(self, used: str) -> dict[int, str]:
        """Return the texts of table StringIds that a query selects, by number."""
        if not {"id", "value"} <= self.columns("StringIds"):
            return {}
        query = f"select id, substr(value, 1, {_LONGEST_TEXT}) from StringIds where id in ({used})"
        found = (map(_decode_cell, row) for batch in self.fetch_batches(query) for row in batch)
        return {number: text for number, text in found if isinstance(number, int) and isinstance(text, str)}

    def fetch_batches(self, query: str, *values: str) -> Iterator[list[tuple[Any, ...]]]:
        """Yield rows of a query, some at a time: texts as bytes, and of any type, for the caller to check."""
        # No function of Python: an interruption by the user is not taken for damage.
        patience = chain(repeat(0, self._patience), repeat(1))
        self._connection.set_progress_handler(patience.__next__, _INSTRUCTIONS_AT_ONCE)
        with _damage_told(self._path):
            cursor = self._connection.execute(query, values)
        while True:
            with _damage_told(self._path):
                batch = cursor.fetchmany(ROWS_AT_ONCE)
            if not batch:
                return
            yield batch


def is_plain(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


@contextmanager
def open_export(path: Path, stream: ByteStream | None = None, folder: str | None = None) -> Iterator[NsysFile]:
    """Open the export; a gzipped one is unpacked into a temporary file in `folder` while `stream` reads it."""
    if is_plain(path):
        with _connect_sqlite(path, path) as export:
            yield export
        return
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".sqlite") as unpacked:
        stream = stream or ByteStream(path)
        for block in stream.blocks():
            with naming(Path(unpacked.name)):
                unpacked.write(block)
        with naming(Path(unpacked.name)):
            unpacked.flush()
        if stream.problem is not None:
            raise BrokenSource(f"{path}: {stream.problem}. Copy or compress it again.")
        with _connect_sqlite(Path(unpacked.name), path) as export:
            yield export


@contextmanager
def _connect_sqlite(file: Path, told: Path) -> Iterator[NsysFile]:
    # Immutable: no lock, no journal beside the file; what a hostile schema calls is not trusted.
    address = f"{file.resolve().as_uri()}?mode=ro&immutable=1"
    with _damage_told(told):
        connection = sqlite3.connect(address, uri=True)
    with closing(connection):
        with _damage_told(told):
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_CELL)
            connection.execute("pragma trusted_schema = off")
            connection.execute("pragma cell_size_check = on")
        connection.text_factory = bytes  # a text that is not UTF-8 would end the query
        yield NsysFile(connection, told, file.stat().st_size)


@contextmanager
def _damage_told(path: Path) -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        is_endless = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT
        why = "it has more rows than fit into its size" if is_endless else error
        raise BrokenSource(f"{path} is not a complete SQLite file: {why}. Copy or export it again.") from None


def integer_columns(names: Sequence[str], batch: Sequence[Sequence[int]]) -> Rows:
    flat = np.fromiter(chain.from_iterable(batch), np.int64, len(batch) * len(names))
    return dict(zip(names, flat.reshape(-1, len(names)).T.copy(), strict=True))


def _decode_cell(value: object) -> object:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
