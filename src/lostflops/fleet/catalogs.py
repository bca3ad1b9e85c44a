"""The Iceberg table of a fleet: found in its catalog, made there, and checked before it is used.

A table may come from anybody. What it says about code to load and about files elsewhere is refused.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from lostflops.core.errors import BrokenRun, LostflopsError, RunError, UsageError
from lostflops.fleet.kinds import CATALOG_FILE, BucketTable, LocalTable, NamedCatalog, TableKind
from lostflops.fleet.locations import is_inside, local_path
from lostflops.fleet.summary import COLUMNS
from lostflops.store.connections import connect

NAMESPACE: Final = "lostflops"
"""Namespace of the table, and name of the catalog of a local folder."""
TABLE: Final = (NAMESPACE, "runs")
FOLDER: Final = "runs"
"""Folder of the table's files, in the folder of a fleet."""
_MISSING: Final = "fleets made by adding runs need pyiceberg, which is not installed: pip install 'lostflops[fleet]'"
_NO_TABLE: Final = "{} has no runs yet. Add some: lostflops fleet add {} RUN..."
_LOCK_SECONDS: Final = "60"
_FOLDER_IO: Final = "lostflops.fleet.confined_io.FolderIO"
PROPERTIES: Final = {
    "format-version": "2",  # every engine reads it
    "write.metadata.metrics.default": "none",  # only these columns select files
    "write.metadata.metrics.column.run": "full",
    "write.metadata.metrics.column.start": "full",
    "write.metadata.metrics.column.stop": "full",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "16",
    "commit.retry.num-retries": "0",  # we try again ourselves, because a run may have been added meanwhile
}
"""Properties of a new table."""


@contextmanager
def needing_iceberg() -> Iterator[None]:
    """Give the error in words if the extra is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"pyiceberg", "pyarrow", "sqlalchemy"}:
            raise
        raise UsageError(_MISSING) from None


def load_table(kind: TableKind) -> Any:
    """Return the table to read, or to write once it exists; raise in words if it cannot be used."""
    with needing_iceberg():
        from pyiceberg.exceptions import NoSuchTableError  # noqa: PLC0415 - an extra, and slow to import

        if isinstance(kind, LocalTable):
            _check_local(kind.folder)
        with in_words(kind):
            try:
                table = _open_catalog(kind).load_table(TABLE)
            except NoSuchTableError:
                raise RunError(_NO_TABLE.format(kind, kind)) from None
            _check_table(table, kind)
        return table


def make_table(kind: TableKind) -> Any:
    """Return the table, which is made if the place is new."""
    with needing_iceberg():
        from pyiceberg.exceptions import (  # noqa: PLC0415
            NamespaceAlreadyExistsError,
            NoSuchTableError,
            TableAlreadyExistsError,
        )

        if isinstance(kind, LocalTable):
            _make_folder(kind.folder)
            if (kind.folder / CATALOG_FILE).exists():
                _check_local(kind.folder)
        with in_words(kind):
            catalog = _open_catalog(kind)
            try:
                table = catalog.load_table(TABLE)
            except NoSuchTableError:
                try:
                    catalog.create_namespace_if_not_exists(NAMESPACE)
                    table = catalog.create_table(TABLE, _schema(), _locate_files(kind), properties=PROPERTIES)
                except (TableAlreadyExistsError, NamespaceAlreadyExistsError):  # another writer was first
                    table = catalog.load_table(TABLE)
            _check_table(table, kind)
        return table


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{folder} cannot be written: {error.strerror}. Choose another folder.") from None


def _open_catalog(kind: TableKind) -> Any:
    if isinstance(kind, BucketTable):
        from lostflops.fleet.bucket_catalog import BucketCatalog  # noqa: PLC0415 - imports pyiceberg

        return BucketCatalog(kind.address)
    if isinstance(kind, NamedCatalog):
        from pyiceberg.catalog import load_catalog  # noqa: PLC0415

        return load_catalog(kind.name)
    from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415
    from sqlalchemy import URL  # noqa: PLC0415

    file = str(kind.folder / CATALOG_FILE)
    url = URL.create("sqlite", database=file, query={"timeout": _LOCK_SECONDS}).render_as_string(hide_password=False)
    properties = {"uri": url, "warehouse": f"file://{kind.folder}", "py-io-impl": _FOLDER_IO}
    return SqlCatalog(NAMESPACE, **properties)


def _locate_files(kind: TableKind) -> str | None:
    """Return where a new table has its files; a configured catalog decides itself."""
    return f"file://{kind.folder / FOLDER}" if isinstance(kind, LocalTable) else None


@contextmanager
def in_words(kind: TableKind) -> Iterator[None]:
    """Turn what libraries raise for a broken or foreign table, or a catalog that does not answer, into our errors."""
    try:
        yield
    except (LostflopsError, ModuleNotFoundError):
        raise
    except OSError as error:
        raise BrokenRun(f"the fleet {kind} cannot be read: {_first_line(error)}.") from None
    except Exception as error:  # noqa: BLE001 - each catalog raises errors of its own
        raise BrokenRun(f"the fleet {kind} cannot be used: {type(error).__name__}: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or ["no reason given"])[0][:300]


def _check_local(folder: Path) -> None:
    """Raise if the catalog names a table elsewhere, or a table that names code to load."""
    try:
        uri = f"{(folder / CATALOG_FILE).as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=float(_LOCK_SECONDS))) as catalog:
            rows = catalog.execute("SELECT metadata_location FROM iceberg_tables").fetchall()
    except sqlite3.Error as error:
        if "no such table" in str(error):  # another writer is just making it
            return
        raise BrokenRun(f"{folder / CATALOG_FILE} is not the catalog of a fleet: {error}.") from None
    for (location,) in rows:
        path = local_path(str(location))
        if path is None or not is_inside(str(location), f"file://{folder}"):
            raise BrokenRun(
                f"the catalog of {folder} names a table at {location}. A fleet cannot be moved or copied to another "
                "folder: move it back, or add its runs to a new one."
            )
        _check_metadata(path)


def _check_metadata(path: Path) -> None:
    try:
        properties = msgspec.json.decode(path.read_bytes())["properties"]
    except FileNotFoundError:  # a later commit replaced it
        return
    except (msgspec.DecodeError, KeyError, TypeError, OSError) as error:
        raise BrokenRun(f"{path} is not the metadata of a table: {_first_line(error)}") from None
    _check_properties(properties, path)


def _check_properties(properties: object, table: object) -> None:
    """Raise if a table names code to load, or files in another place."""
    if not isinstance(properties, dict):
        raise BrokenRun(f"{table} is not the metadata of a table")
    for name in properties:
        if "py-" in name or name in {"write.data.path", "write.metadata.path"}:
            raise BrokenRun(f"{table} sets {name}, so it was not made by Lostflops and is not used.")


def _check_table(table: Any, kind: TableKind) -> None:
    _check_properties(dict(table.metadata.properties), kind)
    found = {field.name: name_type(field.field_type) for field in table.schema().fields}
    for name, expected in COLUMNS.items():
        if found.get(name) != expected:
            problem = f"has no column {name}" if name not in found else f"has a column {name} of another type"
            raise BrokenRun(
                f"the table of {kind} {problem}: it is not a fleet, or was made by another version of Lostflops. "
                "Add its runs to a new fleet."
            )


def name_type(kind: Any) -> str:
    """Return an Iceberg type as `COLUMNS` writes it."""
    from pyiceberg.types import ListType, MapType, StructType  # noqa: PLC0415

    if isinstance(kind, StructType):
        return f"STRUCT({', '.join(f'{field.name} {name_type(field.field_type)}' for field in kind.fields)})"
    if isinstance(kind, ListType):
        return f"{name_type(kind.element_type)}[]"
    if isinstance(kind, MapType):
        return f"MAP({name_type(kind.key_type)}, {name_type(kind.value_type)})"
    return {"string": "VARCHAR", "long": "BIGINT", "int": "INTEGER", "double": "DOUBLE"}.get(str(kind), str(kind))


def _schema() -> Any:
    columns = ", ".join(f'NULL::{kind} AS "{name}"' for name, kind in COLUMNS.items())
    with closing(connect()) as connection:
        return connection.sql(f"SELECT {columns} LIMIT 0").to_arrow_table().schema
