"""A run in memory: the declared tables with the rows that a test states."""

from collections.abc import Callable, Hashable
from itertools import groupby
from pathlib import Path
from typing import Any

import duckdb

from lostflops.store.manifest import Manifest
from lostflops.store.run import Run
from lostflops.store.tables import TABLES, table

_AT_ONCE = 200


class MemoryRun:
    """Stands in for `Run` where a test wants to show all its rows.

    >>> MemoryRun(ranks=[{"rank": 3, "events": 7}]).sql("select rank, events, host from ranks").fetchall()
    [(3, 7, None)]
    """

    steps: tuple[int, ...] = ()
    path = Path("run")
    address = "run"
    manifest = Manifest()
    """Of no files: nothing is derived from a run in memory."""

    def __init__(self, **rows: list[dict[str, Any]]) -> None:
        self.whole = self
        self._kept: dict[Hashable, Any] = {}
        self.connection = duckdb.connect()
        for declared in TABLES:
            columns = ", ".join(f'"{column.name}" {column.type}' for column in declared.columns)
            self.connection.execute(f'create table "{declared.name}" ({columns})')
        for name, entries in rows.items():
            # A statement takes as long to plan as to insert hundreds of rows.
            for given, alike in groupby(entries, key=tuple):
                self._insert(name, given, list(alike))

    def _insert(self, name: str, given: tuple[str, ...], entries: list[dict[str, Any]]) -> None:
        types = {column.name: column.type for column in table(name).columns}
        assert set(given) <= set(types), f"{name} has no column {set(given) - set(types)}"
        columns = ", ".join(f'"{column}"' for column in given)
        row = ", ".join(f"?::{types[column]}" for column in given)
        for first in range(0, len(entries), _AT_ONCE):
            some = entries[first : first + _AT_ONCE]
            marks = ", ".join([f"({row})"] * len(some))
            values = [value for entry in some for value in entry.values()]
            self.connection.execute(f'insert into "{name}" ({columns}) values {marks}', values)

    def sql(self, query: str) -> duckdb.DuckDBPyRelation:
        return self.connection.sql(query)

    def rows(self, query: str) -> list[Any]:
        return self.connection.execute(query).fetchall()

    def columns(self, query: str) -> dict[str, Any]:
        return self.connection.execute(query).fetchnumpy()

    def is_kept(self, key: Hashable) -> bool:
        return key in self._kept

    def keep(self, key: Hashable, make: Callable[[], Any]) -> Any:
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def table(self, name: str) -> duckdb.DuckDBPyRelation:
        return self.connection.table(name)

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(row[0] for row in self.sql("select rank from ranks order by rank").fetchall())

    world_size = Run.world_size

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> "MemoryRun":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
