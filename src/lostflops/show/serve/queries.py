"""SQL queries of the page, with limits on rows and bytes of the answer."""

from __future__ import annotations

import json
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

import duckdb

from lostflops.core.errors import QueryError
from lostflops.core.results import Field, Result, Table
from lostflops.core.units import pluralise
from lostflops.show.serve.limits import explain_memory_limit
from lostflops.store.tables import TABLES

if TYPE_CHECKING:
    from lostflops.core.results import Value
    from lostflops.store.run import Run

MOST_ROWS: Final = 10_000
MOST_BYTES: Final = 1_000_000
MOST_TEXT: Final = 10_000
_BATCH: Final = 100
_NUMBERS: Final = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "FLOAT",
                   "DOUBLE", "HUGEINT", "BOOLEAN"}  # fmt: skip


def run_query(run: Run, query: str, most_bytes: int) -> Result:
    """Return the rows of untrusted SQL; `most_bytes` is the memory that it may use."""
    relation = run.checked_sql(query)
    fields = tuple(Field(column, label=column) for column in relation.columns)
    try:
        rows, more = _rows(relation)
    except duckdb.OutOfMemoryException:
        raise QueryError(explain_memory_limit(most_bytes)) from None
    except duckdb.Error as error:
        raise QueryError(str(error)) from None
    verdict = f"{'The first ' if more else ''}{pluralise(len(rows), 'row')}."
    return Result("sql", "Query", verdict, (Table("rows", "", fields, tuple(rows)),))


def _rows(relation: duckdb.DuckDBPyRelation) -> tuple[list[tuple[Value, ...]], bool]:
    """Return rows until there are enough, and whether there are more. The query cuts texts: a single one could take all
    memory."""
    columns = (
        f"#{place}" if str(kind) in _NUMBERS else f"left(CAST(#{place} AS VARCHAR), {MOST_TEXT})"
        for place, kind in enumerate(relation.types, 1)
    )
    found = relation.project(", ".join(columns)).limit(MOST_ROWS + 1)
    rows: list[tuple[Value, ...]] = []
    taken = 0
    for row in found.iter_rows(_BATCH):
        plain = tuple(map(_plain, row))
        taken += len(json.dumps(plain))
        if len(rows) == MOST_ROWS or (rows and taken > MOST_BYTES):
            return rows, True
        rows.append(plain)
    return rows, False


def _plain(value: Any) -> Value:
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, str | int | float) else str(value)


def tables() -> list[dict[str, Any]]:
    """Return the tables that can be queried."""
    return [
        {
            "name": table.name,
            "doc": table.doc,
            "columns": [
                {"name": column.name, "type": column.type, "unit": column.unit, "doc": column.doc}
                for column in table.columns
            ],
        }
        for table in TABLES
    ]
