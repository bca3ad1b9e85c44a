"""The file that makes a folder a run: the parts that belong to it, and their sources.

A run is exactly what its manifest names. Data files are written under new names first; the manifest is then replaced in
one rename, so a run is always the old one or the new one.

Rule for older runs: a schema version only ever adds tables and columns, and what an older run lacks reads as empty or
null. A version that must change a meaning raises `OLDEST_READABLE`, and older runs are then refused with the command
that makes them again.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from lostflops.collect.capture import FOLDER
from lostflops.core.errors import BrokenRun, NotARun, RunError, RunTooNew
from lostflops.core.limits import LARGEST_MANIFEST
from lostflops.core.units import format_bytes
from lostflops.store.places import Address, naming, unsafe
from lostflops.store.seals import UNSEALED, is_seal_broken, seal
from lostflops.store.tables import SCHEMA_VERSION, TABLES

FILE_NAME = "run.json"
OLDEST_READABLE = 1
_MOST_BESIDE: Final = 1000
"""Most names beside a missing run that are compared with its name."""


class Source(msgspec.Struct, kw_only=True):
    """A file that was ingested, and the facts that it states about its rank."""

    path: str
    size: int
    modified_ns: int
    hash: str
    format: str
    rank: int
    rank_source: str
    host: str | None = None
    device: str | None = None
    device_index: int | None = None
    world_size: int | None = None
    backend: str | None = None
    base_time: int = 0
    events: int = 0
    etag: str = ""
    """ETag of an object in a store, as listed: with the size it shows whether the object changed."""

    def is_unchanged(self, path: Path) -> bool:
        """Return whether size and time of change are the same: this counts as the same content, as in make and git."""
        status = path.stat()
        return (self.size, self.modified_ns) == (status.st_size, status.st_mtime_ns)


class DataFile(msgspec.Struct, kw_only=True):
    """A Parquet file of one table."""

    path: str
    """Relative to the run."""
    format: str
    ranks: list[int]
    bytes: int = -1
    """Size; -1 until it is measured."""
    crc32: int = -1
    """Checksum of its bytes; -1 until it is measured, and in runs of older versions."""


class Manifest(msgspec.Struct, kw_only=True):
    schema: int = SCHEMA_VERSION
    writer: str = ""
    generation: int = 0
    columns: dict[str, list[str]] = msgspec.field(default_factory=dict)
    """Columns that every file of a table has, by table."""
    sources: list[Source] = msgspec.field(default_factory=list)
    files: dict[str, list[DataFile]] = msgspec.field(default_factory=dict)
    seal: str = UNSEALED
    """Checksum of the manifest itself; the last value."""


class _Version(msgspec.Struct):
    schema: int


_DAMAGE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def current_columns() -> dict[str, list[str]]:
    return {table.name: list(table.column_names()) for table in TABLES}


def load(folder: Path) -> Manifest:
    """Read and check the manifest of a run."""
    path = folder / FILE_NAME
    try:
        data = _read_file(path)
    except (FileNotFoundError, NotADirectoryError):
        if alike := _run_alike(folder):
            raise NotARun(f"{folder} does not exist. Did you mean {alike}?") from None
        traces = folder / FOLDER if (folder / FOLDER).is_dir() else "TRACES"
        raise NotARun(
            f"{folder} is not a run (no {FILE_NAME}). To make one: "
            f"lostflops ingest {shlex.quote(str(traces))} -o {shlex.quote(str(folder))}"
        ) from None
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}.") from None
    return decode_manifest(data, folder, path)


def _run_alike(folder: Path) -> Path | None:
    """Return the run beside a folder that does not exist, whose name is nearly the same; None if no name is."""
    if folder.exists():
        return None
    try:
        beside = [path.name for path in islice(folder.parent.iterdir(), _MOST_BESIDE)]
    except OSError:
        return None
    names = get_close_matches(folder.name, beside, cutoff=0.7)
    return next((folder.with_name(name) for name in names if (folder.with_name(name) / FILE_NAME).is_file()), None)


def _read_file(path: Path) -> bytes:
    """Read a file of a run that somebody may have passed on: a pipe never ends, and a link leads out of the run."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise BrokenRun(f"{path} is a link. Do not use this run, or open the folder that it leads to.") from None
        raise
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise BrokenRun(f"{path} is not a regular file. Do not use this run.")
        if found.st_size > LARGEST_MANIFEST:
            size = format_bytes(found.st_size)
            raise BrokenRun(f"{path} is too large for a list of files: {size}. Do not use this run.")
        return file.read(LARGEST_MANIFEST)


def decode_manifest(data: bytes, run: Path | Address, file: Path | Address) -> Manifest:
    """Decode a manifest from its bytes, and check it."""
    try:
        document = msgspec.json.decode(data)
        version = msgspec.convert(document, _Version).schema
    except _DAMAGE as error:
        raise BrokenRun(f"{file} is damaged ({error}). Ingest the traces again into a new folder.") from None
    if version > SCHEMA_VERSION:
        raise RunTooNew(
            f"{run} has schema {version}, but this Lostflops reads only up to {SCHEMA_VERSION}. "
            "Upgrade: pip install -U lostflops"
        )
    if version < OLDEST_READABLE:
        raise RunError(f"{run} has schema {version}, which is too old. Ingest its traces again into a new folder.")
    try:
        found = msgspec.convert(document, Manifest)
    except _DAMAGE as error:
        raise BrokenRun(f"{file} is damaged ({error}). Ingest the traces again into a new folder.") from None
    is_sealed = found.seal != UNSEALED or all(one.crc32 < 0 for files in found.files.values() for one in files)
    if is_seal_broken(data, found.seal) or not is_sealed:
        raise BrokenRun(
            f"{file} was changed after it was written: its checksum differs. Ingest the traces again into a new folder."
        )
    found.seal = UNSEALED
    # A run that somebody passed on could else show, or lose, files of whoever opens it.
    for named in (one.path for files in found.files.values() for one in files):
        if why := unsafe(named):
            raise BrokenRun(f"{file} names a file outside the run: {named!r} {why}. Do not use this run.")
    return found


def encode_manifest(manifest: Manifest) -> bytes:
    unsealed = msgspec.structs.replace(manifest, seal=UNSEALED)
    text = msgspec.json.format(msgspec.json.encode(unsealed), indent=1)
    assert msgspec.json.decode(text, type=Manifest) == unsealed, "a manifest that cannot be read would cost the run"
    return seal(text)


def is_run(folder: Path) -> bool:
    """Return whether the folder has a run, readable or not; other programs call files `run.json` too."""
    try:
        document = msgspec.json.decode(_read_file(folder / FILE_NAME))
    except (OSError, BrokenRun, *_DAMAGE):
        return False
    return isinstance(document, dict) and {"schema", "sources", "files"} <= document.keys()


def save(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest in one step; the data it names must be on disk already."""
    text = encode_manifest(manifest)
    temporary = folder / f".{FILE_NAME}.new"
    with naming(temporary), temporary.open("wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(folder / FILE_NAME)
    make_durable(folder)


def make_durable(folder: Path) -> None:
    """Flush the entries of a folder, so that new and renamed files in it last."""
    directory = os.open(folder, os.O_RDONLY)
    try:
        with naming(folder):
            os.fsync(directory)
    finally:
        os.close(directory)
