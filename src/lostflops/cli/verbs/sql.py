"""`lostflops sql`: query a run with SQL."""

import sys
from collections.abc import Iterator
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lostflops.cli.output import RunArgument, command, show

if TYPE_CHECKING:
    import duckdb

    from lostflops.core.results import Result, Value
    from lostflops.store.run import Run

EXAMPLE = 'lostflops sql run "select kind, sum(dur) from events group by kind"'
TABLE_ROWS = 40
"""A table for people shows this many rows if no limit is given; CSV and JSON have all rows."""

_BATCH = 10_000


class Format(StrEnum):
    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def sql(
    run: RunArgument,
    query: Annotated[
        str | None,
        typer.Argument(metavar="QUERY", help="SQL query; without it, the tables are listed.", show_default=False),
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="How to print the rows.")] = Format.TABLE,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            min=1,
            metavar="N",
            help=f"Print at most N rows.  [default: {TABLE_ROWS} in a table, else all]",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Query a run with SQL.

    The dialect is DuckDB's. The run is never changed. Without a query, the tables are listed.
    """
    from lostflops.cli.scope import open_run

    chosen = Format.JSON if as_json else output
    with open_run(run) as held:
        opened = held.stored
        if query is None:
            _list_tables(opened, run, chosen)
        else:
            _answer(opened.sql(query), run, query, chosen, limit)


def _answer(relation: "duckdb.DuckDBPyRelation", run: Path, query: str, chosen: Format, limit: int | None) -> None:
    from lostflops.show.report import plain

    columns, types = relation.columns, [str(kind) for kind in relation.types]
    rows = _rows(relation)
    match chosen:
        case Format.CSV:
            plain.write_csv(columns, islice(rows, limit), sys.stdout)
        case Format.JSON:
            plain.write_json_table("lostflops.sql/1", columns, types, islice(rows, limit), sys.stdout)
        case Format.TABLE:
            show(_as_result(columns, rows, limit or TABLE_ROWS, run, query), as_json=False)


def _rows(relation: "duckdb.DuckDBPyRelation") -> Iterator[tuple[Any, ...]]:
    """Yield the rows as they come: a query can fail long after it was accepted, at a value that it cannot convert."""
    import duckdb

    from lostflops.core.errors import QueryError
    from lostflops.store.asking import asking

    try:
        with asking():
            yield from relation.iter_rows(_BATCH)
    except duckdb.Error as error:
        raise QueryError(str(error)) from error


def _as_result(columns: list[str], rows: Iterator[tuple[Any, ...]], limit: int, run: Path, query: str) -> "Result":
    from lostflops.core.results import Field, Result, Table
    from lostflops.core.units import pluralise

    kept = tuple(tuple(map(_plain, row)) for row in islice(rows, limit))
    more = next(rows, None) is not None
    table = Table("rows", "", tuple(Field(column) for column in columns), kept)
    total = f"The first {pluralise(limit, 'row')}; --limit N shows more, --format csv shows all." if more else ""
    return Result(
        name="sql",
        title="Query",
        verdict=total or f"{pluralise(len(kept), 'row')}.",
        blocks=(table,),
        next_command=command("sql", run, query, "--format", "csv") if more else command("sql", run),
    )


def _plain(value: Any) -> "Value":
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _list_tables(opened: "Run", path: Path, chosen: Format) -> None:
    from lostflops.core.results import Field, Result, Table
    from lostflops.show.report import plain
    from lostflops.store.tables import TABLES

    if chosen is not Format.TABLE:
        columns = ["table", "column", "type", "unit", "doc"]
        rows = [
            (table.name, column.name, column.type, column.unit, column.doc)
            for table in TABLES
            for column in table.columns
        ]
        if chosen is Format.CSV:
            plain.write_csv(columns, rows, sys.stdout)
        else:
            plain.write_json_table("lostflops.sql/1", columns, ["VARCHAR"] * len(columns), rows, sys.stdout)
        return
    listing = []
    for table in TABLES:
        [(count,)] = opened.sql(f'select count(*) from "{table.name}"').fetchall()
        listing.append((table.name, count, ", ".join(table.column_names())))
    fields = (Field("table"), Field("rows", "count"), Field("columns"))
    show(
        Result(
            name="sql",
            title="Tables",
            verdict="Times are integer ns, sizes are bytes; --format csv shows type, unit and meaning of each column.",
            blocks=(Table("tables", "", fields, tuple(listing)),),
            next_command=command("sql", path, "select kind, count(*), sum(dur) from events group by kind"),
        ),
        as_json=False,
    )
