"""A run in memory: the declared tables with the rows that a test states."""

from typing import Any

import duckdb

from lostflops.store.tables import TABLES, table


class MemoryRun:
    """Stands in for `Run` where a test wants to show all its rows.

    >>> MemoryRun(ranks=[{"rank": 3, "events": 7}]).sql("select rank, events, host from ranks").fetchall()
    [(3, 7, None)]
    """

    steps: tuple[int, ...] = ()

    def __init__(self, **rows: list[dict[str, Any]]) -> None:
        self.whole = self
        self.connection = duckdb.connect()
        for declared in TABLES:
            columns = ", ".join(f'"{column.name}" {column.type}' for column in declared.columns)
            self.connection.execute(f'create table "{declared.name}" ({columns})')
        for name, entries in rows.items():
            known = set(table(name).column_names())
            for entry in entries:
                assert set(entry) <= known, f"{name} has no column {set(entry) - known}"
                columns = ", ".join(f'"{column}"' for column in entry)
                marks = ", ".join("?" * len(entry))
                self.connection.execute(f'insert into "{name}" ({columns}) values ({marks})', list(entry.values()))

    def sql(self, query: str) -> duckdb.DuckDBPyRelation:
        return self.connection.sql(query)

    def table(self, name: str) -> duckdb.DuckDBPyRelation:
        return self.connection.table(name)

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(row[0] for row in self.sql("select rank from ranks order by rank").fetchall())

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> "MemoryRun":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
