"""The unit of ingest: one file of one rank in, one part of every table out. Only plain values travel."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from lostflops.ingest.readers import READERS
from lostflops.ingest.reading import Job, RankClaim
from lostflops.store.manifest import Source
from lostflops.store.parquet import ParquetWriter


class Task(msgspec.Struct, kw_only=True):
    """A file to ingest, and the rank it is taken for unless the file itself knows better."""

    path: str
    format: str
    rank: int
    rank_source: str
    staging: str
    stem: str


class Outcome(msgspec.Struct, kw_only=True):
    """What a task wrote: file names by table, and rows by table."""

    source: Source
    files: dict[str, list[str]]
    rows: dict[str, int]


def carry_out(task: Task, writer: ParquetWriter, on_read: Callable[[int], None] | None = None) -> Outcome:
    path = Path(task.path)
    before = path.stat()
    claim = RankClaim(task.rank, task.rank_source)
    job = Job(path, claim, Path(task.staging), task.stem, writer, on_read)
    with _garbage_collection_paused():
        found = READERS[task.format].ingest(job)
    source = Source(
        path=str(path),
        size=before.st_size,
        modified_ns=before.st_mtime_ns,
        hash=found.digest,
        format=task.format,
        rank=found.rank,
        rank_source=found.rank_source,
        host=found.host,
        device=found.device,
        device_index=found.device_index,
        world_size=found.world_size,
        backend=found.backend,
        base_time=found.base_time,
        events=found.rows.get("events", 0),
    )
    return Outcome(source=source, files=found.files, rows=dict(found.rows))


@contextmanager
def _garbage_collection_paused() -> Iterator[None]:
    """Decoding makes millions of short-lived objects without cycles; looking for cycles costs a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
