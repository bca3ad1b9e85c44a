"""Lay the ranks of a run side by side, from what was written of all of them: the last step before a commit."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from lostflops.align.aligned import Columns, aligned
from lostflops.store.commit import RunWriter, rank_rows
from lostflops.store.manifest import DataFile, Source
from lostflops.store.parquet import ParquetWriter, scan
from lostflops.store.tables import ARRIVALS, CLOCKS, COLLECTIVES, GROUPS

Files = dict[str, list[DataFile]]


def align_ranks(run: RunWriter, files: Files, sources: Sequence[Source]) -> None:
    """Write tables `clocks` and `arrivals` anew; `files` is changed to name them."""
    hosts = {int(str(row["rank"])): _text(row["host"]) for row in rank_rows(list(sources))}
    columns = _columns(run, files, hosts)
    writer = ParquetWriter()
    try:
        for table, rows in zip((CLOCKS, ARRIVALS), columns, strict=True):
            path = run.staging / table.name / "all.parquet"
            writer.write(table, rows, path)
            files[table.name] = [DataFile(path=run.relative(path), format="", ranks=sorted(hosts))]
    finally:
        writer.close()


def _columns(run: RunWriter, files: Files, hosts: dict[int, str | None]) -> tuple[Columns, Columns]:
    with duckdb.connect() as connection:
        for table in (COLLECTIVES, GROUPS):
            paths = [run.folder / file.path for file in files.get(table.name, [])]
            declared = ", ".join(f"CAST(NULL AS {column.type}) AS {column.name}" for column in table.columns)
            rows = f"SELECT {declared} WHERE false"
            if paths:
                rows += f" UNION ALL BY NAME SELECT * FROM {scan(paths, union_by_name=True)}"
            connection.execute(f"CREATE VIEW {table.name} AS {rows}")
        sizes = dict(connection.sql("SELECT group_id, max(size) FROM groups GROUP BY 1").fetchall())
        return aligned(lambda sql: connection.sql(sql).fetchnumpy(), COLLECTIVES.name, sizes, hosts)


def _text(value: object) -> str | None:
    return None if value is None else str(value)
