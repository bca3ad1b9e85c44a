"""Check that SQL only reads: no statement in it changes anything, and no function reaches outside tables.

DuckDB takes `WITH x AS (COPY ... TO 'file') SELECT ...` for a SELECT, and runs SQL that is given to functions as text.
So the parsed query is checked, and whatever is not known to be harmless is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, Final

import duckdb

from lostflops.core.errors import QueryError

EXPLAIN: Final = re.compile(r"\s*explain\s+(?P<analyze>analyze\s+)?", re.IGNORECASE)
_DEEPEST: Final = 200
"""Brackets may be nested this deeply. Deeper ones keep the parser busy, and Python 3.13 reads them without an error."""
_TOO_DEEP: Final = "the query is nested too deeply"
READ_ONLY: Final = "a run is read-only: write one SELECT (or DESCRIBE, SHOW, SUMMARIZE, EXPLAIN)"

_NODES: Final = {"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"}
_TABLE_FUNCTIONS: Final = {
    "duckdb_columns", "duckdb_functions", "duckdb_keywords", "duckdb_types", "generate_series", "histogram",
    "histogram_values", "json_each", "json_tree", "pragma_table_info", "pragma_version", "range", "repeat",
    "repeat_row", "unnest",
}  # fmt: skip
# They tell settings and the text of views, in which the paths of the run's files stand.
_TELLING: Final = {"current_setting", "json_serialize_plan", "pg_get_viewdef"}
_OWN_SCHEMAS: Final = {(), ("main",), ("memory",), ("memory", "main")}
_CATALOG: Final = {("information_schema", "columns"), ("information_schema", "tables")}
# Without one of these words no query can hold what changes something; looking at the words is cheaper than parsing.
_SUSPECT: Final = re.compile(r"copy|insert|update|delete|merge|serialized", re.IGNORECASE)


def may_change(query: str) -> bool:
    """Return whether the query may change something, by its words.

    >>> may_change("select count(*) from events"), may_change("with x as (copy t to 'f') from x")
    (False, True)
    """
    return _SUSPECT.search(query) is not None


def check_stranger(query: str, connection: duckdb.DuckDBPyConnection) -> None:
    """Raise `QueryError` unless the query reads only the run's own tables: other tables show where its files are."""
    explained = EXPLAIN.match(query)
    if explained and explained["analyze"]:
        raise QueryError("EXPLAIN ANALYZE would show file names of this machine: use EXPLAIN")
    found = check_reads(query, connection)
    internal = "SELECT lower(view_name) FROM duckdb_views() WHERE internal AND schema_name <> 'information_schema'"
    hidden = {name for (name,) in connection.execute(internal).fetchall()}
    for item in found:
        if item.get("type") == "BASE_TABLE":
            _check_table(item, hidden)
        name = str(item.get("function_name", "")).lower()
        if name in _TELLING:
            raise QueryError(f"a query may read only the tables of the run, so function {name!r} is not allowed")


def check_reads(query: str, connection: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """Raise `QueryError` unless the query is one SELECT over tables and harmless functions; return its parts."""
    if _depth(query) > _DEEPEST:
        raise QueryError(_TOO_DEEP)
    explained = EXPLAIN.match(query)
    try:
        text = connection.execute("SELECT json_serialize_sql($1)", [query[explained.end() :] if explained else query])
        [(parsed,)] = text.fetchall()
    except duckdb.Error as error:
        raise QueryError(str(error)) from None
    try:
        tree = json.loads(parsed)
    except RecursionError:
        raise QueryError(_TOO_DEEP) from None
    if tree["error"]:
        parser = tree.get("error_type") == "parser"
        raise QueryError(f"Parser Error: {tree['error_message']}" if parser else READ_ONLY)
    if len(tree["statements"]) != 1:
        raise QueryError(READ_ONLY)
    found = list(_items(tree))
    for item in found:
        kind = str(item.get("type", ""))
        if kind.endswith("_NODE") and kind not in _NODES:
            raise QueryError(READ_ONLY)
        if kind == "TABLE_FUNCTION":
            _check_function(item)
    return found


def _depth(query: str) -> int:
    """Return how deeply brackets are nested; those in texts count too.

    >>> _depth("select (1), [[2]]")
    2
    """
    steps = ((char in "([{") - (char in ")]}") for char in query)
    return max(accumulate(steps), default=0)


def _check_table(item: dict[str, Any], hidden: set[str]) -> None:
    """Raise unless it is a table of the run.

    The name of a subquery (WITH) hides a table of the catalog only in some places, so it must not be the same name.
    """
    *schema, name = (str(part).lower() for part in (item["catalog_name"], item["schema_name"], item["table_name"]))
    where = tuple(filter(None, schema))
    if (*where, name) not in _CATALOG and (where not in _OWN_SCHEMAS or name in hidden):
        shown = ".".join((*where, name))
        raise QueryError(
            f"a query may read only the tables of the run (SHOW TABLES lists them), and {shown!r} is not one of them"
        )


def _check_function(item: dict[str, Any]) -> None:
    function = item.get("function", {})
    name = str(function.get("function_name", "")).lower()
    if name not in _TABLE_FUNCTIONS:
        raise QueryError(f"a query may read only the tables of the run, so function {name!r} is not allowed")


def _items(value: Any) -> Iterator[dict[str, Any]]:
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)
