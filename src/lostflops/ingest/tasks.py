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
from msgspec.structs import replace

from lostflops.core.errors import BrokenSource, SourceError
from lostflops.ingest.common.reader import RankClaim, RankRows, ReadTask
from lostflops.ingest.common.refusals import refusal_of, refuse_large_job
from lostflops.ingest.common.vocabulary import Vocabulary
from lostflops.ingest.find.captures import read_instead
from lostflops.ingest.find.object_fetch import fetch_object, inspect_file, told_as, upload_parts
from lostflops.ingest.find.trace_file import ObjectState, TraceFile
from lostflops.ingest.formats import READERS
from lostflops.store.manifest import Source
from lostflops.store.parquet import ParquetWriter
from lostflops.store.parts import PartFile, PartWriter
from lostflops.store.scratch import scratch_folder
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
    died: str = ""
    """How workers died over the task; empty if it was carried out."""


def carry_out(task: FileBatch, on_read: OnRead) -> TaskOutcome:
    """Read the files of a task; a file that cannot be read is refused, and the others are read all the same."""
    with _own_folder(task) as own, _garbage_collection_paused():
        batch = _Batch(task, own, on_read)
        return batch.upload(batch.read())


@contextmanager
def _own_folder(task: FileBatch) -> Iterator[Path]:
    """Yield a folder for fetched objects and for parts to upload; local files need no folder of their own."""
    if task.staging and all(file.listed is None for file in task.files):
        yield Path(task.staging)
        return
    with TemporaryDirectory(dir=task.scratch) if task.scratch else scratch_folder() as folder:
        yield Path(folder)


class _RowsLeft(Exception):
    """A file was refused after some of its rows were put among those of other files."""

    def __init__(self, address: str, refusal: SourceError) -> None:
        super().__init__(address)
        self.address, self.refusal = address, refusal


class _Batch:
    """Reads the files of a task together; if that fails, each into parts of its own."""

    def __init__(self, task: FileBatch, own: Path, on_read: OnRead) -> None:
        self._task, self._own, self._on_read = task, own, on_read
        self._staging = Path(task.staging) if task.staging else own / "parts"
        self._staging.mkdir(parents=True, exist_ok=True)
        # A worker that was given up may still send its parts: under other names than the one that took over.
        self._stem = f"{task.stem}-{secrets.token_hex(4)}" if task.upload else task.stem
        self._refused: dict[str, SourceError] = {}

    def read(self) -> TaskOutcome:
        try:
            return self._read_together(self._task.files, self._stem)
        except _RowsLeft as error:
            self._refused[error.address] = error.refusal
        except SourceError:  # of a file that the user named
            raise
        except Exception as error:  # noqa: BLE001 - what is not of a file is raised again
            refusal = self._refusal(error, self._task.files[0])
            if len(self._task.files) == 1 and self._task.files[0].twin is None:
                self._refused[self._task.files[0].address] = refusal
        done = TaskOutcome()
        for number, file in enumerate(self._task.files):
            self._read_alone(file, f"{self._stem}-{number}", done)
        return done

    def upload(self, done: TaskOutcome) -> TaskOutcome:
        """Send the written parts to where the task says, if anywhere; an error of the store is not one of a file."""
        if self._task.upload:
            by_format: dict[str, list[PartFile]] = {}
            for written in done.files:
                by_format.setdefault(written.format, []).append(written.part)
            done.files = [
                WrittenPart(name, sent)
                for name, parts in by_format.items()
                for sent in upload_parts(parts, self._staging, f"{name}-{self._stem}", self._task.upload)
            ]
        return done

    def _refusal(self, error: Exception, file: TraceFile) -> SourceError:
        refusal = refusal_of(error, file.address, self._staging)
        if refusal is None:
            raise error
        return refusal

    def _read_alone(self, file: TraceFile, stem: str, done: TaskOutcome) -> None:
        """Read a file, otherwise its twin, and add what was read to `done`."""
        reasons: list[tuple[str, str]] = []
        for form, part_stem in ((file, stem), (file.twin, f"{stem}-raw")):
            if form is None:
                continue
            refusal = self._refused.get(form.address) or self._try_alone(replace(form, twin=None), part_stem, done)
            if refusal is None:
                break
            if file.is_named and file.twin is None:
                raise refusal
            reasons.append((form.address, str(refusal)))
        if file.twin is not None and len(reasons) == 1:
            reasons = [(file.address, read_instead(reasons[0][1]))]
        done.skipped += reasons

    def _try_alone(self, file: TraceFile, stem: str, done: TaskOutcome) -> SourceError | None:
        try:
            read = self._read_together([file], stem)
        except _RowsLeft as error:
            return error.refusal
        except Exception as error:  # noqa: BLE001 - what is not of this file is raised again
            return self._refusal(error, file)
        done.sources += read.sources
        done.files += read.files
        done.skipped += read.skipped
        done.unclaimed += read.unclaimed
        return None

    def _read_together(self, files: list[TraceFile], stem: str) -> TaskOutcome:
        """Read files into the same parts; if any of them cannot be kept apart, nothing is left of them all."""
        writer = ParquetWriter()
        reading = _Reading(self._task, writer, stem, (self._own, self._staging), self._on_read)
        try:
            return reading.outcome(files)
        except BaseException:
            reading.discard()
            raise
        finally:
            writer.close()


class _Reading:
    def __init__(
        self, task: FileBatch, writer: ParquetWriter, stem: str, folders: tuple[Path, Path], on_read: OnRead
    ) -> None:
        """`folders` are that of the worker, for fetched objects, and that of the parts."""
        self._task, self._writer, self._stem, self._on_read = task, writer, stem, on_read
        self._own, self._staging = folders
        self._parts: dict[str, tuple[PartWriter, Vocabulary]] = {}
        self._done = TaskOutcome()

    def outcome(self, files: list[TraceFile]) -> TaskOutcome:
        for file in files:
            self._take(file)
        for source_format, (parts, _) in self._parts.items():
            self._done.files += [WrittenPart(source_format, part) for part in parts.finish()]
        return self._done

    def discard(self) -> None:
        for parts, _ in self._parts.values():
            parts.discard()

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
        before = self._rows_put()
        try:
            if file.listed is not None:
                return self._read_object(file, file.listed)
            self._read(file, Path(file.address), self._task.format, file.claim)
        except Exception as error:
            refusal = refusal_of(error, file.address, self._staging)
            if refusal is None:
                raise
            if self._rows_put() != before:
                raise _RowsLeft(file.address, refusal) from None
            if file.is_named and file.twin is None:
                raise refusal from None
            return str(refusal)
        return None

    def _rows_put(self) -> int:
        return sum(parts.puts for parts, _ in self._parts.values())

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
        for rank in found:
            refuse_large_job(file.address, rank.rank, rank.world_size)
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


def _refuse(task: FileBatch, error: BrokenSource) -> TaskOutcome:
    """Return the outcome of a task over which workers died: its file is left out, unless the user named it."""
    if any(file.is_named for file in task.files):
        raise error
    return TaskOutcome(died=str(error))


WORK: Final = Work(
    "ingest", FileBatch, TaskOutcome, carry_out, about=lambda task: task.files[0].address, refuse=_refuse
)
