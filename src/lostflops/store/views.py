"""Views of a run's tables: each is made, and the bytes of its files are compared, when a query first names it.

To make the views of all tables takes as long as answering a question about a small run.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import duckdb

from lostflops.core.errors import BrokenRun
from lostflops.store.checksums import check_tables
from lostflops.store.manifest import Manifest
from lostflops.store.memory_limit import not_enough_memory
from lostflops.store.parquet import scan
from lostflops.store.tables import TABLES, TableSchema

ALL: Final = frozenset(declared.name for declared in TABLES)
_WORD: Final = re.compile(r"\w+")
_NAMES_IN_TEXT: Final = frozenset({"query", "query_table"})
"""Functions that take names of tables as text."""


class Views:
    """The views of an open run, shared by all its connections."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._folder, self._manifest = folder, manifest
        self._lock = threading.Lock()
        self._unmade = {declared.name: declared for declared in TABLES}
        self._unread = set(manifest.files)
        """Tables whose files were not compared with their checksums yet."""

    def prepare(self, query: str, connection: duckdb.DuckDBPyConnection) -> None:
        """Compare the files of all tables that a query names, and make their views."""
        if not self._unmade and not self._unread:
            return
        words = set(_WORD.findall(query.lower()))
        named = words if words.isdisjoint(_NAMES_IN_TEXT) else ALL
        unread = self._unread & named
        if unread:
            check_tables(self._folder, self._manifest, unread)
            self._unread -= unread
        self.make(connection, named)

    def make(self, connection: duckdb.DuckDBPyConnection, names: Iterable[str] = ALL) -> None:
        """Make views that are still missing, without a look at the bytes of their files."""
        with self._lock, reading(self._folder, self._manifest):
            for name in self._unmade.keys() & set(names):
                connection.execute(f"CREATE VIEW IF NOT EXISTS {name} AS {self._rows(self._unmade[name])}")
                del self._unmade[name]

    def empty(self, connection: duckdb.DuckDBPyConnection, tables: Iterable[TableSchema]) -> None:
        """Show no rows of some tables."""
        for declared in tables:
            connection.execute(f"CREATE OR REPLACE VIEW {declared.name} AS {_no_rows(declared)}")
            self._unmade.pop(declared.name, None)

    def _rows(self, declared: TableSchema) -> str:
        """Return a SELECT with every declared column, null if a file is older than the column."""
        nothing = _no_rows(declared)
        paths = [self._folder / file.path for file in self._manifest.files.get(declared.name, [])]
        if not paths:
            return nothing
        names = declared.column_names()
        if set(self._manifest.columns.get(declared.name, ())) >= set(names):
            return f"SELECT {', '.join(names)} FROM {scan(paths)}"
        known = f"{nothing} UNION ALL BY NAME SELECT * FROM {scan(paths, union_by_name=True)}"
        return f"SELECT {', '.join(names)} FROM ({known})"


def _no_rows(declared: TableSchema) -> str:
    nulls = ", ".join(f"CAST(NULL AS {column.type}) AS {column.name}" for column in declared.columns)
    return f"SELECT {nulls} WHERE false"


@contextmanager
def reading(folder: Path, manifest: Manifest) -> Iterator[None]:
    """Say which file is damaged if DuckDB cannot read a run."""
    try:
        yield
    except duckdb.OutOfMemoryException:
        raise not_enough_memory() from None
    except duckdb.InterruptException:
        raise
    except (duckdb.Error, UnicodeDecodeError) as error:  # the second if names of columns are damaged
        check_tables(folder, manifest, manifest.files)
        first = str(error).splitlines()[0]
        raise BrokenRun(f"{folder} cannot be read: {first}. Ingest its traces again.") from None
