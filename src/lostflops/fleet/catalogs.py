"""The Iceberg table of a fleet: found in its catalog, made there, and checked before it is used.

A table may come from anybody. What it says about code to load and about files elsewhere is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from lostflops.core.errors import BrokenRun, LostflopsError, RunError, UsageError
from lostflops.fleet.kinds import CATALOG_FILE, BucketTable, LocalTable, NamedCatalog, TableKind
from lostflops.fleet.local_catalog import LOCK_SECONDS, NAME, TABLE, check_properties, read_metadata
from lostflops.fleet.summary import COLUMNS
from lostflops.store.connections import connect
from lostflops.store.scratch import locked

FOLDER: Final = "runs"
"""Folder of the table's files, in the folder of a fleet."""
_MISSING: Final = "fleets made by adding runs need pyiceberg, which is not installed: pip install 'lostflops[fleet]'"
_NO_TABLE: Final = "{} has no runs yet. Add some: lostflops fleet add {} RUN..."
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
            read_metadata(kind.folder)
        with in_words(kind):
            try:
                table = _open_catalog(kind).load_table(TABLE)
            except NoSuchTableError:
                raise RunError(_NO_TABLE.format(kind, kind)) from None
            _check_table(table.metadata, kind)
        return table


def open_scan(kind: TableKind) -> Any:
    """Return a scan of the newest version, for its list of files."""
    if not isinstance(kind, LocalTable):
        return load_table(kind).scan()
    with needing_iceberg():
        from pyiceberg.table import DataScan  # noqa: PLC0415
        from pyiceberg.table.metadata import TableMetadataUtil  # noqa: PLC0415

        from lostflops.fleet.local_io import LocalIO  # noqa: PLC0415 - imports pyiceberg

        if (data := read_metadata(kind.folder)) is None:
            raise RunError(_NO_TABLE.format(kind, kind))
        with in_words(kind):
            metadata = TableMetadataUtil.parse_raw(data.decode())
            _check_table(metadata, kind)
        return DataScan(metadata, LocalIO(kind.folder))


def make_table(kind: TableKind) -> Any:
    """Return the table, which is made if the place is new."""
    with needing_iceberg():
        import pyiceberg.table  # noqa: F401, PLC0415 - before a folder is made for nothing

        if not isinstance(kind, LocalTable):
            return _find_or_make(kind)
        _make_folder(kind.folder)
        if (kind.folder / CATALOG_FILE).exists() and read_metadata(kind.folder) is not None:
            return load_table(kind)
        with locked(kind.folder):
            return _find_or_make(kind)


def _find_or_make(kind: TableKind) -> Any:
    from pyiceberg.exceptions import (  # noqa: PLC0415
        NamespaceAlreadyExistsError,
        NoSuchTableError,
        TableAlreadyExistsError,
    )

    with in_words(kind):
        catalog = _open_catalog(kind)
        try:
            table = catalog.load_table(TABLE)
        except NoSuchTableError:
            try:
                catalog.create_namespace_if_not_exists(NAME)
                table = catalog.create_table(TABLE, _schema(), _locate_files(kind), properties=PROPERTIES)
            except (TableAlreadyExistsError, NamespaceAlreadyExistsError):  # another writer was first
                table = catalog.load_table(TABLE)
        _check_table(table.metadata, kind)
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
    return _open_local(kind.folder)


def _open_local(folder: Path) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415
    from sqlalchemy import URL, NullPool, create_engine  # noqa: PLC0415

    url = URL.create("sqlite", database=str(folder / CATALOG_FILE), query={"timeout": str(LOCK_SECONDS)})
    properties = {
        "uri": url.render_as_string(hide_password=False),
        "warehouse": f"file://{folder}",
        "py-io-impl": _FOLDER_IO,
    }
    catalog = SqlCatalog(NAME, **properties)
    catalog.engine.dispose()
    catalog.engine = create_engine(url, poolclass=NullPool)  # keeps no connection open after use
    return catalog


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


def _check_table(metadata: Any, kind: TableKind) -> None:
    check_properties(dict(metadata.properties), kind)
    found = {field.name: name_type(field.field_type) for field in metadata.schema().fields}
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
    return {"string": "VARCHAR", "long": "BIGINT", "int": "INTEGER", "double": "DOUBLE"}.get(
        str(kind), str(kind).upper()
    )


def _schema() -> Any:
    columns = ", ".join(f'NULL::{kind} AS "{name}"' for name, kind in COLUMNS.items())
    with closing(connect()) as connection:
        return connection.sql(f"SELECT {columns} LIMIT 0").to_arrow_table().schema
