"""The catalog of a fleet in a local folder: an SQLite file that names the newest metadata of its table.

Writers use it through pyiceberg. Readers ask it directly, because the libraries that pyiceberg needs to write take
longer to import than a question takes.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from lostflops.core.errors import BrokenRun, RunBusy
from lostflops.fleet.kinds import CATALOG_FILE
from lostflops.fleet.locations import is_inside, local_path

NAME: Final = "lostflops"
"""Name of the catalog, and namespace of its table."""
TABLE: Final = (NAME, "runs")
LOCK_SECONDS: Final = 60
_FIND: Final = (
    "SELECT metadata_location FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?"
)
_PLACES: Final = frozenset({"write.data.path", "write.metadata.path"})
_READS: Final = 5
"""Tries to read metadata that writers may replace at the same time."""


def read_metadata(folder: Path) -> bytes | None:
    """Return the newest metadata of the table, or None if it was not made yet; raise if it is not to be trusted."""
    for attempt in range(_READS):
        location = _find_metadata(folder)
        if location is None:
            return None
        path = local_path(location)
        if path is None or not is_inside(location, f"file://{folder}"):
            raise BrokenRun(
                f"the catalog of {folder} names a table at {location}. A fleet cannot be moved or copied to another "
                "folder: move it back, or add its runs to a new one."
            )
        try:
            data = path.read_bytes()
        except OSError as error:
            if attempt + 1 < _READS and isinstance(error, FileNotFoundError):
                continue
            raise BrokenRun(f"{path} cannot be read: {error.strerror}.") from None
        check_properties(_decode_properties(data, path), path)
        return data
    raise AssertionError


def check_properties(properties: dict[str, Any], table: object) -> None:
    """Raise if a table names code to load, or files in another place."""
    for name in properties:
        if "py-" in name or name in _PLACES:
            raise BrokenRun(f"{table} sets {name}, so it was not made by Lostflops and is not used.")


def _find_metadata(folder: Path) -> str | None:
    file = folder / CATALOG_FILE
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=LOCK_SECONDS)) as catalog:
            row = catalog.execute(_FIND, (NAME, *TABLE)).fetchone()
    except sqlite3.Error as error:
        if "no such table" in str(error):  # another writer is just making it
            return None
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
            raise RunBusy(f"{file} was locked by another process for {LOCK_SECONDS} s. Try again.") from None
        raise BrokenRun(f"{file} is not the catalog of a fleet: {error}.") from None
    return None if row is None else str(row[0])


def _decode_properties(data: bytes, path: Path) -> dict[str, Any]:
    try:
        properties = msgspec.json.decode(data)["properties"]
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise BrokenRun(f"{path} is not the metadata of a table: {error}") from None
    if not isinstance(properties, dict):
        raise BrokenRun(f"{path} is not the metadata of a table: its properties are not named")
    return properties
