"""A reduced trace: one rank's rows as Parquet, in one file that a job leaves in place of a trace.

It is a ZIP without compression: `part.json` with the facts of the trace about its rank (`ReducedTrace`), then
`<table>/<number>.parquet` as an ingest of the trace writes them. A reader takes them as they are, after it has checked
that they can only be rows of this rank in tables that such a trace fills; anything else is a broken source.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import struct
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import duckdb
import msgspec
from msgspec import Meta

from lostflops._version import __version__
from lostflops.core.errors import BrokenSource
from lostflops.ingest.common.reader import RankRows, ReadTask
from lostflops.store.parts import PartFile
from lostflops.store.places import naming
from lostflops.store.tables import (
    COLLECTIVES,
    EVENTS,
    GROUPS,
    LANES,
    LINKS,
    MEMORY,
    SCHEMA_VERSION,
    STATS,
    STEPS,
    TableSchema,
)

_TOLD: Final = "part.json"
_HEAD: Final = re.compile(rb'PK\x03\x04.{22}\x09\x00\x00\x00part\.json\{"reduced":', re.DOTALL)
_MEMBER: Final = re.compile(r"([a-z_]{1,40})/\d{1,6}\.parquet")
_MOST_TOLD: Final = 64 << 10
_MOST_ROWS: Final = 1 << 28
_TABLES: Final = {table.name: table for table in (COLLECTIVES, EVENTS, GROUPS, LANES, LINKS, MEMORY, STATS, STEPS)}
_IS_ENCRYPTED: Final = 1
_NO_ZIP: Final = (zipfile.BadZipFile, EOFError, ValueError, OverflowError, RuntimeError, struct.error)
"""Errors that `zipfile` raises for damaged files; a feature that it does not support is a RuntimeError."""

Index = Annotated[int, Meta(ge=0, lt=1 << 31)]


class ReducedTrace(msgspec.Struct, kw_only=True):
    """Content of `part.json`."""

    reduced: Annotated[int, Meta(ge=1)] = 1
    """Version of this layout."""
    schema: int = SCHEMA_VERSION
    """Version of the tables."""
    format: str
    writer: str = f"lostflops {__version__}"
    trace_bytes: Annotated[int, Meta(ge=0)]
    """Size of the trace before it was reduced, as text."""
    rank: Index
    rank_source: str
    rows: dict[str, Annotated[int, Meta(ge=0, le=_MOST_ROWS)]]
    host: str | None = None
    device: str | None = None
    device_index: Index | None = None
    world_size: Index | None = None
    backend: str | None = None
    base_time: Annotated[int, Meta(ge=0, lt=1 << 62)] = 0


def recognises(head: bytes) -> bool:
    return _HEAD.match(head) is not None


def is_reduced(path: Path) -> bool:
    with path.open("rb") as file:
        return recognises(file.read(64))


def pack(told: ReducedTrace, folder: Path, files: Sequence[PartFile], target: Path) -> None:
    """Pack the files that a `PartWriter` wrote to `folder` into one file."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(_TOLD), msgspec.json.encode(told))
        for number, file in enumerate(files):
            with (
                (folder / file.table / file.name).open("rb") as source,
                archive.open(zipfile.ZipInfo(f"{file.table}/{number}.parquet"), "w", force_zip64=True) as member,
            ):
                shutil.copyfileobj(source, member, 1 << 20)


def told_by(path: Path) -> ReducedTrace:
    with path.open("rb") as file, _open_archive(path, file) as archive:
        return _read_header(path, archive)


def adopt(job: ReadTask, source_format: str) -> list[RankRows]:
    """Take the rows of a reduced trace as they are; raise BrokenSource, and take nothing, if anything is wrong."""
    with job.path.open("rb") as file, _open_archive(job.path, file) as archive:
        told = _read_header(job.path, archive)
        if told.format != source_format:
            raise _build_error(job.path, f"it has rows of a {told.format!r} trace")
        _take(job, told, archive)
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if job.on_read is not None:
            job.on_read(file.tell())
    return [_build_ingested(told, digest)]


def _take(job: ReadTask, told: ReducedTrace, archive: zipfile.ZipFile) -> None:
    taken: list[tuple[TableSchema, Path]] = []
    is_taken = False
    try:
        for table, member in _members(job.path, archive):
            taken.append((table, job.parts.new_file(table)))
            _extract(job.path, archive, member, taken[-1][1])
        job.parts.adopt(taken, told.rank, told.rows)
        is_taken = True
    except ValueError as error:
        raise _build_error(job.path, str(error)) from None
    except duckdb.Error:
        raise _build_error(job.path, "one of its tables is not Parquet") from None
    finally:
        if not is_taken:
            for _, file in taken:
                file.unlink(missing_ok=True)


def _build_ingested(told: ReducedTrace, digest: str) -> RankRows:
    return RankRows(
        rank=told.rank,
        rank_source=told.rank_source,
        digest=digest,
        rows=Counter(told.rows),
        host=told.host,
        device=told.device,
        device_index=told.device_index,
        world_size=told.world_size,
        backend=told.backend,
        base_time=told.base_time,
    )


def _open_archive(path: Path, file: BinaryIO) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except _NO_ZIP:
        raise _build_error(path, "it is not complete") from None


def _read_header(path: Path, archive: zipfile.ZipFile) -> ReducedTrace:
    first = archive.infolist()[0] if archive.infolist() else None
    if first is None or first.filename != _TOLD or first.file_size > _MOST_TOLD or not _is_plain(first):
        raise _build_error(path, f"it does not begin with {_TOLD}")
    try:
        told = msgspec.json.decode(archive.read(first), type=ReducedTrace)
    except (msgspec.DecodeError, *_NO_ZIP) as error:
        raise _build_error(path, f"{_TOLD} is damaged: {error}") from None
    if told.reduced > 1 or told.schema > SCHEMA_VERSION:
        raise _build_error(
            path, f"it was written by a newer version ({told.writer}). Upgrade: pip install -U lostflops"
        )
    return told


def _members(path: Path, archive: zipfile.ZipFile) -> list[tuple[TableSchema, zipfile.ZipInfo]]:
    """Return the tables in the archive, by its directory alone; their sizes are limited by the size of the file."""
    infos = archive.infolist()[1:]
    if len({info.filename for info in infos} | {_TOLD}) <= len(infos):
        raise _build_error(path, "two of its members have the same name")
    if sum(info.file_size for info in infos) > path.stat().st_size:
        raise _build_error(path, "its members are larger than the file")
    found = []
    for info in infos:
        name = _MEMBER.fullmatch(info.filename)
        if name is None or name[1] not in _TABLES or not _is_plain(info):
            raise _build_error(path, f"it has an unexpected member {info.filename[:80]!r}")
        found.append((_TABLES[name[1]], info))
    return found


def _is_plain(info: zipfile.ZipInfo) -> bool:
    is_stored = info.compress_type == zipfile.ZIP_STORED and info.file_size == info.compress_size
    return is_stored and info.header_offset >= 0 and not info.flag_bits & _IS_ENCRYPTED


def _extract(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path) -> None:
    try:
        with archive.open(member) as source, naming(target), target.open("wb") as file:
            shutil.copyfileobj(source, file, 1 << 20)
    except _NO_ZIP as error:
        raise _build_error(path, f"{member.filename} is damaged: {error}") from None


def _build_error(path: Path, reason: str) -> BrokenSource:
    return BrokenSource(f"{path} is not a readable reduced trace: {reason}.")
