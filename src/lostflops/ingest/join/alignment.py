"""Alignment of the ranks of a run, from the rows written for all of them: the last step before a commit."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from lostflops.account.align.clock_tables import Aligned, Columns
from lostflops.account.align.common_clock import Readings
from lostflops.store.commit import RunWriter, rank_rows
from lostflops.store.connections import connect
from lostflops.store.manifest import DataFile, Source
from lostflops.store.parquet import ParquetWriter, scan
from lostflops.store.tables import ARRIVALS, ATTEMPTS, CLOCK_SAMPLES, CLOCKS, COLLECTIVES, GROUPS, TableSchema

Files = dict[str, list[DataFile]]


def align_ranks(run: RunWriter, files: Files, sources: Sequence[Source]) -> None:
    """Write tables `clocks` and `arrivals` again; `files` is changed to name them."""
    hosts = hosts_of(sources)
    found = _align_collectives(run, files, hosts)
    writer = ParquetWriter()

    def written(table: TableSchema, name: str, ranks: list[int], columns: Columns) -> DataFile:
        path = run.staging / table.name / f"{name}.parquet"
        writer.write(table, columns, path)
        return DataFile(path=run.relative(path), format="", ranks=ranks)

    try:
        files[CLOCKS.name] = [written(CLOCKS, "all", sorted(hosts), found.clocks())]
        files[ARRIVALS.name] = [
            written(ARRIVALS, f"ranks-{ranks[0]:06d}", ranks, columns) for ranks, columns in found.arrivals() if ranks
        ]
    finally:
        writer.close()


def hosts_of(sources: Sequence[Source]) -> dict[int, str | None]:
    """Return the host of each rank, None if it is not known."""
    return {int(str(row["rank"])): _text(row["host"]) for row in rank_rows(list(sources))}


def _align_collectives(run: RunWriter, files: Files, hosts: dict[int, str | None]) -> Aligned:
    with connect() as connection:
        for table in (COLLECTIVES, GROUPS, CLOCK_SAMPLES, ATTEMPTS):
            paths = run.all_at(files.get(table.name, []))
            declared = ", ".join(f"CAST(NULL AS {column.type}) AS {column.name}" for column in table.columns)
            rows = f"SELECT {declared} WHERE false"
            if paths:
                rows += f" UNION ALL BY NAME SELECT * FROM {scan(paths, union_by_name=True)}"
            connection.execute(f"CREATE TEMP VIEW {table.name} AS {rows}")
        sizes = dict(connection.sql("SELECT group_id, max(size) FROM groups GROUP BY 1").fetchall())
        return Aligned(
            lambda sql: connection.sql(sql).fetchnumpy(), COLLECTIVES.name, sizes, hosts, _readings(connection)
        )


def _readings(connection: duckdb.DuckDBPyConnection) -> Readings:
    """Return the clock readings of the traced attempt: in another attempt a rank may have been on another host."""
    rows = connection.sql(
        """WITH begun AS (SELECT rank, min(start) AS start FROM collectives GROUP BY rank),
           traced AS (
               SELECT max(attempt) AS attempt FROM attempts JOIN begun USING (rank)
               WHERE begun.start BETWEEN attempts.start AND attempts.stop
           )
           SELECT rank::BIGINT AS rank, wall, peer::BIGINT AS peer, peer_wall
           FROM clock_samples JOIN attempts USING (rank) JOIN traced USING (attempt)
           WHERE peer IS NOT NULL AND wall BETWEEN attempts.start AND attempts.stop"""
    ).fetchnumpy()
    return Readings(rows["rank"], rows["wall"], rows["peer"], rows["peer_wall"])


def _text(value: object) -> str | None:
    return None if value is None else str(value)
