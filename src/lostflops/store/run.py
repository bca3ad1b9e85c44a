"""A run on disk, opened for questions: its tables in DuckDB, read-only."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

import duckdb

from lostflops.errors import BrokenRun, QueryError, UsageError
from lostflops.store import manifest as manifests
from lostflops.store.tables import TABLES, Table, table

_READING = ([duckdb.StatementType.SELECT], [duckdb.StatementType.EXPLAIN])


class Run:
    """Open with `Run.open(path)`; every table of `lostflops.store.tables` is a view.

    >>> with Run.open("demo-run") as run:  # doctest: +SKIP
    ...     run.sql("select kind, count(*) from events group by kind").fetchall()
    """

    def __init__(self, path: Path, manifest: manifests.Manifest, connection: duckdb.DuckDBPyConnection) -> None:
        self.path = path
        self.manifest = manifest
        self._connection = connection

    @classmethod
    def open(cls, path: str | Path) -> Run:
        folder = Path(path).resolve()
        manifest = manifests.load(folder)
        connection = duckdb.connect()
        try:
            for declared in TABLES:
                connection.execute(f"CREATE VIEW {declared.name} AS {_rows(folder, manifest, declared)}")
            # Views may read the run; queries may read or write nothing else.
            connection.execute("SET allowed_directories = [$folder]", {"folder": str(folder)})
            connection.execute("SET enable_external_access = false")
            connection.execute("SET lock_configuration = true")
        except duckdb.Error as error:
            connection.close()
            raise BrokenRun(f"{folder} cannot be read: {_first_line(error)}. Ingest its traces again.") from None
        return cls(folder, manifest, connection)

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted({source.rank for source in self.manifest.sources}))

    def table(self, name: str) -> duckdb.DuckDBPyRelation:
        try:
            return self._connection.table(table(name).name)
        except KeyError:
            known = ", ".join(declared.name for declared in TABLES)
            raise UsageError(f"no table {name!r} in a run. There are: {known}") from None

    def sql(self, query: str) -> duckdb.DuckDBPyRelation:
        """Rows of one SELECT over the tables of the run; a run is never changed by a query."""
        try:
            statements = self._connection.extract_statements(query)
            if [statement.type for statement in statements] not in _READING:
                raise QueryError("a run is read-only: write one SELECT (or DESCRIBE, SHOW, SUMMARIZE, EXPLAIN)")
            return self._connection.sql(query)
        except duckdb.Error as error:
            raise QueryError(str(error)) from None

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _rows(folder: Path, manifest: manifests.Manifest, declared: Table) -> str:
    """A SELECT with every declared column, null where the run is older than the column."""
    files = manifest.files.get(declared.name, [])
    if not files:
        nothing = ", ".join(f"CAST(NULL AS {column.type}) AS {column.name}" for column in declared.columns)
        return f"SELECT {nothing} WHERE false"
    written = set(manifest.columns.get(declared.name, ()))
    columns = ", ".join(
        column.name if column.name in written else f"CAST(NULL AS {column.type}) AS {column.name}"
        for column in declared.columns
    )
    paths = ", ".join("'" + str(folder / file.path).replace("'", "''") + "'" for file in files)
    return f"SELECT {columns} FROM read_parquet([{paths}])"


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
