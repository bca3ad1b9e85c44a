"""Summaries as rows of a table, and back. JSON is the form between them, because DuckDB reads it with given types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import duckdb
import msgspec

from lostflops.core.errors import UsageError
from lostflops.fleet.summary import COLUMNS, RunSummary, check_summary

_TYPES: Final = msgspec.json.encode([COLUMNS]).decode()
_MOST: Final = 2**63 - 1


def select_rows(connection: duckdb.DuckDBPyConnection, summaries: Sequence[RunSummary]) -> duckdb.DuckDBPyRelation:
    """Return the summaries as a relation with the types of `COLUMNS`."""
    document = msgspec.json.encode(summaries).decode()
    rows = "SELECT unnest(json_transform($rows, $types), max_depth := 2)"
    return connection.sql(rows, params={"rows": document, "types": _TYPES})


def read_summary(row: Mapping[str, Any]) -> RunSummary:
    return msgspec.convert(row, RunSummary)


def keep_newest(summaries: Iterable[RunSummary]) -> list[RunSummary]:
    """Return the last summary of each run; raise if one is impossible."""
    newest = {summary.run: summary for summary in summaries}
    for summary in newest.values():
        check_summary(summary)
        if max(summary.total_ns, summary.window_ns) > _MOST:
            raise ValueError(f"{summary.address}: the time of all its ranks is over {_MOST / 3.6e12:,.0f} GPU-hours")
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
