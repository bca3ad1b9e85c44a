"""The unit of ingest: files of some ranks in, one part of every table out. Only plain values are sent."""

from __future__ import annotations

import gc
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from lostflops.core.errors import BrokenSource
from lostflops.ingest.common.reader import RankClaim, RankRows, ReadTask
from lostflops.ingest.common.vocabulary import Vocabulary
from lostflops.ingest.find.captures import read_instead
from lostflops.ingest.find.object_fetch import fetch_object, inspect_file, told_as, upload_parts
from lostflops.ingest.find.trace_file import ObjectState, TraceFile
from lostflops.ingest.formats import READERS
from lostflops.store.manifest import Source
from lostflops.store.parquet import ParquetWriter
from lostflops.store.parts import PartFile, PartWriter
from lostflops.store.spread.work import OnRead, Work


class FileBatch(msgspec.Struct, kw_only=True):
    """Files whose rows go into the same parts; usually one file."""

    format: str
    files: list[TraceFile]
    staging: str
    """Folder to write to; empty if the worker must use a folder of its own."""
    stem: str
    upload: str = ""
    """Address to send the written parts to; empty if they stay here."""
    scratch: str = ""
    """Folder for fetched objects that the caller removes, even if a worker is killed; empty for remote workers."""


class WrittenPart(msgspec.Struct):
    """A part of a table, from files in one format."""

    format: str
    part: PartFile


class Unclaimed(msgspec.Struct):
    """An object that states no rank, seen when it was fetched: nothing was read from it."""

    path: str
    format: str
    ranks: int
    """Number of consecutive ranks that it needs."""


class TaskOutcome(msgspec.Struct, kw_only=True):
    """Everything that a task read and wrote."""

    sources: list[Source] = msgspec.field(default_factory=list)
    files: list[WrittenPart] = msgspec.field(default_factory=list)
    skipped: list[tuple[str, str]] = msgspec.field(default_factory=list)
    unclaimed: list[Unclaimed] = msgspec.field(default_factory=list)


def carry_out(task: FileBatch, on_read: OnRead) -> TaskOutcome:
    writer = ParquetWriter()
    try:
        with _own_folder(task) as own, _garbage_collection_paused():
            return _Reading(task, writer, own, on_read).outcome()
    finally:
        writer.close()


@contextmanager
def _own_folder(task: FileBatch) -> Iterator[Path]:
    """Yield a folder for fetched objects and for parts to upload; local files need no folder of their own."""
    if task.staging and all(file.listed is None for file in task.files):
        yield Path(task.staging)
        return
    with TemporaryDirectory(prefix="lostflops-", dir=task.scratch or None) as folder:
        yield Path(folder)


class _Reading:
    def __init__(self, task: FileBatch, writer: ParquetWriter, own: Path, on_read: OnRead) -> None:
        self._task, self._writer, self._own, self._on_read = task, writer, own, on_read
        self._staging = Path(task.staging) if task.staging else own / "parts"
        self._staging.mkdir(parents=True, exist_ok=True)
        # A worker that was given up may still send its parts: under other names than the one that took over.
        self._stem = f"{task.stem}-{secrets.token_hex(4)}" if task.upload else task.stem
        self._parts: dict[str, tuple[PartWriter, Vocabulary]] = {}
        self._done = TaskOutcome()

    def outcome(self) -> TaskOutcome:
        for file in self._task.files:
            self._take(file)
        for source_format, (parts, _) in self._parts.items():
            written = parts.finish()
            if self._task.upload:
                written = upload_parts(written, self._staging, f"{source_format}-{self._stem}", self._task.upload)
            self._done.files += [WrittenPart(source_format, part) for part in written]
        return self._done

    def _take(self, file: TraceFile) -> None:
        reason = self._try_to_read(file)
        if reason is None:
            return
        left = self._done.skipped
        if file.twin is None:
            left.append((file.address, reason))
        elif (as_well := self._try_to_read(file.twin)) is None:
            left.append((file.address, read_instead(reason)))
        else:
            left += [(file.address, reason), (file.twin.address, as_well)]

    def _try_to_read(self, file: TraceFile) -> str | None:
        """Read the file, or return why it cannot be read."""
        try:
            if file.listed is not None:
                return self._read_object(file, file.listed)
            self._read(file, Path(file.address), self._task.format, file.claim)
        except BrokenSource as error:
            if file.is_named and file.twin is None:
                raise
            return str(error)
        return None

    def _read_object(self, file: TraceFile, listed: ObjectState) -> str | None:
        """Fetch and read an object; return why it is skipped, or None."""
        with fetch_object(file.address, listed.size, listed.etag, self._own) as path, told_as(file.address, path):
            found = inspect_file(path, file.address, is_named=file.is_named and file.twin is None)
            if isinstance(found, str):
                return found
            source_format, claim = found
            if claim.rank is None and file.claim.rank is None:
                self._done.unclaimed.append(Unclaimed(file.address, source_format, claim.ranks))
                return None
            if claim.rank is None:
                claim = file.claim
            self._read(file, path, source_format, claim)
            return None

    def _read(self, file: TraceFile, path: Path, source_format: str, claim: RankClaim) -> None:
        before = path.stat()
        if source_format not in self._parts:
            stem = f"{source_format}-{self._stem}"
            self._parts[source_format] = PartWriter(self._writer, self._staging, stem), Vocabulary()
        parts, vocabulary = self._parts[source_format]
        job = ReadTask(
            path=path,
            claim=claim,
            parts=parts,
            vocabulary=vocabulary,
            spool_folder=str(self._staging),
            on_read=self._on_read,
        )
        modified = file.listed.modified_ns if file.listed is not None else before.st_mtime_ns
        found = READERS[source_format].ingest(job)
        self._done.sources += [_source(source_format, file, before.st_size, modified, rank) for rank in found]


def _source(source_format: str, file: TraceFile, size: int, modified_ns: int, found: RankRows) -> Source:
    return Source(
        path=file.address,
        size=size,
        modified_ns=modified_ns,
        etag=file.listed.etag if file.listed is not None else "",
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
    """Pause garbage collection, which would cost a third of the time.

    Decoding makes millions of short-lived objects without cycles, so there is nothing to collect.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


WORK: Final = Work("ingest", FileBatch, TaskOutcome, carry_out, about=lambda task: task.files[0].address)
