"""The unit of ingest: files of some ranks in, one part of every table out. Only plain values travel."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from lostflops.errors import BrokenSource
from lostflops.ingest.readers import READERS
from lostflops.ingest.reading import Ingested, Job, RankClaim
from lostflops.ingest.vocabulary import Vocabulary
from lostflops.spread.work import OnRead, Work
from lostflops.store.manifest import Source
from lostflops.store.parquet import ParquetWriter
from lostflops.store.parts import PartFile, PartWriter


class TaskFile(msgspec.Struct):
    """A file to ingest, and the rank it is taken for unless the file itself knows better."""

    path: str
    rank: int
    rank_source: str
    is_named: bool = False


class Task(msgspec.Struct, kw_only=True):
    """Files of one format whose rows go together; mostly one file."""

    format: str
    files: list[TaskFile]
    staging: str
    stem: str


class Outcome(msgspec.Struct, kw_only=True):
    """What a task read and wrote."""

    format: str
    sources: list[Source]
    files: list[PartFile]
    skipped: list[tuple[str, str]]


def carry_out(task: Task, on_read: OnRead) -> Outcome:
    writer = ParquetWriter()
    try:
        return _carried_out(task, writer, on_read)
    finally:
        writer.close()


def _carried_out(task: Task, writer: ParquetWriter, on_read: OnRead) -> Outcome:
    parts = PartWriter(writer, Path(task.staging), task.stem)
    vocabulary = Vocabulary()
    sources: list[Source] = []
    skipped: list[tuple[str, str]] = []
    with _garbage_collection_paused():
        for file in task.files:
            path = Path(file.path)
            before = path.stat()
            claim = RankClaim(file.rank, file.rank_source)
            job = Job(path, claim, parts, vocabulary, task.staging, on_read)
            try:
                found = READERS[task.format].ingest(job)
            except BrokenSource as error:
                if file.is_named:
                    raise
                skipped.append((file.path, str(error)))
            else:
                sources += [_source(task.format, path, before, rank) for rank in found]
        files = parts.finish()
    return Outcome(format=task.format, sources=sources, files=files, skipped=skipped)


def _source(source_format: str, path: Path, status: os.stat_result, found: Ingested) -> Source:
    return Source(
        path=str(path),
        size=status.st_size,
        modified_ns=status.st_mtime_ns,
        hash=found.digest,
        format=source_format,
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


WORK: Final = Work("ingest", Task, Outcome, carry_out, about=lambda task: task.files[0].path)
