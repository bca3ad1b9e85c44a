"""Checksums of the files of a run: a changed byte is an error before a row is read, not a wrong number.

CRC-32 detects every change of one bit, every burst of up to 32 bits, and all but one in four billion other changes. It
protects from accidents, not from somebody who changes a file and its checksum. isal, which ingest needs anyway,
computes it as fast as a file can be read.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NoReturn

from isal import isal_zlib

from lostflops.core.errors import BrokenRun
from lostflops.core.units import pluralise
from lostflops.store.manifest import DataFile, Manifest
from lostflops.store.places import naming

_PIECE: Final = 1 << 20
_SETTLED_NS: Final = 2 * 10**9
"""Two changes of a file within the resolution of its times look like one, so a younger file is read again."""
_computed: dict[tuple[str, int, int, int, int], int] = {}
"""Checksums that this process computed, by path, inode, size and times of change."""


def checksum_of_file(path: Path) -> int:
    """Return the CRC-32 of a file; it is computed again only if the file changed."""
    with naming(path), path.open("rb", buffering=0) as file:
        found = os.fstat(file.fileno())
        key = str(path), found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
        if key in _computed:
            return _computed[key]
        total, piece = 0, memoryview(bytearray(min(_PIECE, found.st_size + 1)))
        while length := file.readinto(piece):
            total = isal_zlib.crc32(piece[:length], total)
    if time.time_ns() - found.st_ctime_ns > _SETTLED_NS:
        _computed[key] = total
    return total


def find_damage(path: Path, file: DataFile, *, is_read: bool = True) -> str:
    """Return what is wrong with a data file, in words that follow its name; empty if nothing is.

    If it is not to be read, only its size is compared.
    """
    try:
        size = path.stat().st_size if path.is_file() and not path.is_symlink() else -1
        found = checksum_of_file(path) if size == file.bytes and file.crc32 >= 0 and is_read else file.crc32
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if size < 0:
        return "is missing"
    if size != file.bytes:
        return f"has {size:,} bytes instead of {file.bytes:,}"
    if found != file.crc32:
        return f"was changed after it was written (its CRC-32 is {found:08x} instead of {file.crc32:08x})"
    return ""


def read_files(folder: Path, manifest: Manifest) -> Iterator[tuple[str, DataFile, str]]:
    """Yield the table of each file, the file, and what is wrong with it; empty if nothing is."""
    for table, files in manifest.files.items():
        for file in files:
            yield table, file, find_damage(folder / file.path, file)


def check_sizes(folder: Path, manifest: Manifest) -> None:
    """Raise `BrokenRun` unless all files of a run are there, in their sizes."""
    for place in {(folder / file.path).parent for files in manifest.files.values() for file in files}:
        if place.resolve() != place:
            raise BrokenRun(f"{place} is a link that leads out of the run. Do not use this run.")
    if any(find_damage(folder / file.path, file, is_read=False) for own in manifest.files.values() for file in own):
        _fail(folder, manifest)


def check_tables(folder: Path, manifest: Manifest, tables: Iterable[str]) -> None:
    """Raise `BrokenRun` unless all files of some tables have the bytes that were written."""
    for table in tables:
        if any(find_damage(folder / file.path, file) for file in manifest.files.get(table, ())):
            _fail(folder, manifest)


def _fail(folder: Path, manifest: Manifest) -> NoReturn:
    """Raise an error that names a damaged file and what is intact."""
    damaged = [one for one in read_files(folder, manifest) if one[2]]
    table, file, damage = damaged[0]
    raise BrokenRun(
        f"{folder / file.path} {damage}. It held {describe_rows(table, file)}; "
        f"{describe_rest(manifest, damaged)} Ingest the traces of {folder} again, into a new folder. "
        f"For all damaged files: lostflops verify {shlex.quote(str(folder))}"
    )


def describe_rows(table: str, file: DataFile) -> str:
    """Return what a file has: its table and its ranks."""
    ranks = f"rank {file.ranks[0]}" if len(file.ranks) == 1 else pluralise(len(file.ranks), "rank")
    return f"rows of table {table}" + (f" of {ranks}" if file.ranks else "")


def describe_rest(manifest: Manifest, damaged: list[tuple[str, DataFile, str]]) -> str:
    """Return what is intact, as a sentence."""
    files = sum(map(len, manifest.files.values()))
    tables = sum(1 for own in manifest.files.values() if own)
    hit = len({table for table, _, _ in damaged})
    return f"{files - len(damaged):,} of {files:,} files are intact, and {tables - hit} of {tables} tables."
