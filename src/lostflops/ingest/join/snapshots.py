"""An allocator's snapshot and a trace of the same rank: allocations that both have are kept once.

It works on written rows, before the commit, as `join.flight` does.
"""

from __future__ import annotations

from lostflops.ingest.formats.allocator import reader as allocator_snapshot
from lostflops.store.commit import RunWriter
from lostflops.store.connections import connect
from lostflops.store.manifest import DataFile
from lostflops.store.parquet import ColumnData, ConstantColumn, ParquetWriter, scan
from lostflops.store.tables import MEMORY, STATS

Files = dict[str, list[DataFile]]


def keep_one_history(run: RunWriter, files: Files) -> None:
    """Drop the snapshot's history where a trace has one; `files` is changed to name the new parts."""
    told = {rank for file in files.get(MEMORY.name, ()) if _is_snapshot(file) for rank in file.ranks}
    gone = told & _ranks_of_traces(run, files) if told else set()
    if not gone:
        return
    writer = ParquetWriter()
    try:
        rest = [run.without(writer, MEMORY.name, one, gone) if _is_snapshot(one) else one for one in files["memory"]]
        files[MEMORY.name] = [file for file in rest if file is not None]
        path = run.staging / STATS.name / f"{allocator_snapshot.NAME}-joined.parquet"
        ranks = sorted(gone)
        columns: dict[str, ColumnData] = {
            "rank": ranks,
            "format": ConstantColumn(allocator_snapshot.NAME),
            "what": ConstantColumn("snapshot_history_left_out"),
            "effect": ConstantColumn("note"),
            "count": ConstantColumn(1),
            "reason": ConstantColumn(
                "the trace already has the allocations of this device: the history of the snapshot is not used"
            ),
        }
        writer.write(STATS, columns, path)
        files.setdefault(STATS.name, []).append(
            DataFile(path=run.relative(path), format=allocator_snapshot.NAME, ranks=ranks)
        )
    finally:
        writer.close()


def _is_snapshot(file: DataFile) -> bool:
    return file.format == allocator_snapshot.NAME


def _ranks_of_traces(run: RunWriter, files: Files) -> set[int]:
    paths = run.all_at([file for file in files[MEMORY.name] if not _is_snapshot(file)])
    if not paths:
        return set()
    with connect() as connection:
        rows = connection.sql(
            f"SELECT DISTINCT rank FROM {scan(paths, union_by_name=True)} WHERE device_type = 1"
        ).fetchall()
    return {rank for (rank,) in rows}
