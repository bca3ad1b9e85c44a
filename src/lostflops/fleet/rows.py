"""Summaries as rows of a table, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import duckdb
import msgspec

from lostflops.core.errors import UsageError
from lostflops.fleet.summary import COLUMNS, RunSummary, check_summary

_TYPES: Final = msgspec.json.encode(COLUMNS).decode()
_MOST: Final = 2**63 - 1
_PER_INSERT: Final = 256


def make_rows(table: Any, summaries: Sequence[RunSummary]) -> Any:
    """Return the summaries as an Arrow table that an Iceberg table takes."""
    import pyarrow as pa  # noqa: PLC0415 - an extra

    try:
        return pa.Table.from_pylist(msgspec.to_builtins(summaries), schema=table.schema().as_arrow())
    except (pa.ArrowInvalid, OverflowError) as error:
        raise ValueError(f"{summaries[0].address}: a number is too large for a fleet: {error}") from None


def fill_table(
    connection: duckdb.DuckDBPyConnection, name: str, summaries: Sequence[RunSummary], columns: Sequence[str]
) -> None:
    """Make a temporary table of these columns of the summaries, without pyarrow: through JSON, of which DuckDB makes
    values of given types."""
    typed = ", ".join(f"{quote(column)} {COLUMNS[column]}" for column in columns)
    connection.execute(f"CREATE TEMP TABLE {name} ({typed})")
    values = ", ".join(f"row.{quote(column)}" for column in columns)
    rows = "(SELECT json_transform(document, $types) AS row FROM (SELECT unnest($documents) AS document))"
    for first in range(0, len(summaries), _PER_INSERT):
        some = [msgspec.json.encode(summary).decode() for summary in summaries[first : first + _PER_INSERT]]
        parameters = {"types": _TYPES, "documents": some}
        connection.execute(f"INSERT INTO {name} SELECT {values} FROM {rows}", parameters)


def select_summaries(table: str) -> str:
    """Return SQL for all columns. Long integers are stored as decimals, which Python would not take for integers."""
    kinds = {name: kind.replace("DECIMAL(38, 0)", "HUGEINT") for name, kind in COLUMNS.items()}
    return f"SELECT {', '.join(f'{quote(name)}::{kind}' for name, kind in kinds.items())} FROM {table}"


def read_summary(row: Mapping[str, Any]) -> RunSummary:
    """Return a row of `select_summaries` as a summary."""
    return msgspec.convert(row, RunSummary)


def keep_newest(summaries: Iterable[RunSummary]) -> list[RunSummary]:
    """Return the last summary of each run; raise if one is impossible."""
    newest = {summary.run: summary for summary in summaries}
    for summary in newest.values():
        check_summary(summary)
        if summary.window_ns > _MOST:
            raise ValueError(f"{summary.address}: its recorded steps are over {_MOST / 3.6e12:,.0f} GPU-hours")
    return list(newest.values())


def check_columns(columns: Iterable[str]) -> tuple[str, ...]:
    """Return the columns in the order of the table, or all if none is named; raise for names that do not exist."""
    wanted = set(columns)
    if unknown := sorted(wanted - set(COLUMNS)):
        raise UsageError(f"a fleet has no column {unknown[0]!r}. Columns are: {', '.join(COLUMNS)}")
    return tuple(name for name in COLUMNS if name in wanted or not wanted)


def quote(column: str) -> str:
    """Return a column as SQL names it; some have the name of a keyword.

    >>> quote("start")
    '"start"'
    """
    return f'"{column}"'
