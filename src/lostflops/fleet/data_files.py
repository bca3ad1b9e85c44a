"""Data files of the table of a fleet: which runs they have, and their rows. A data file never changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

from lostflops.fleet.locations import local_path

FILE_ROWS: Final = 512
"""Files with fewer rows are merged. Replacing one run writes its whole file again, so files are not large."""


def list_tasks(table: Any, where: Any = None) -> list[Any]:
    """Return the data files of the newest version that may have rows of a filter, as pyiceberg describes them."""
    return list((table.scan() if where is None else table.scan(row_filter=where)).plan_files())


def read_rows(table: Any, tasks: Iterable[Any]) -> Any:
    """Return rows of data files as an Arrow table, without those that the table deletes."""
    import pyarrow as pa  # noqa: PLC0415

    schema = table.schema().as_arrow()
    return pa.concat_tables([_read_file(table, task, schema) for task in tasks])


def _read_file(table: Any, task: Any, schema: Any) -> Any:
    from pyarrow.parquet import ParquetFile  # noqa: PLC0415
    from pyiceberg.expressions import AlwaysTrue  # noqa: PLC0415
    from pyiceberg.io.pyarrow import ArrowScan  # noqa: PLC0415

    if not task.delete_files:
        with table.io.new_input(task.file.file_path).open() as file:
            rows = ParquetFile(file).read()
        if rows.schema.equals(schema):
            return rows
    # Other engines write other forms of a type, and files with deleted rows; pyiceberg knows all, but takes 15 ms.
    return ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue()).to_table([task]).cast(schema)


def read_column(table: Any, task: Any, column: str) -> Any:
    """Return one column of a data file, with the rows that the table deletes."""
    from pyarrow.parquet import ParquetFile  # noqa: PLC0415

    open_parts = getattr(table.io, "open_parts", None) or (lambda location: table.io.new_input(location).open())
    with open_parts(task.file.file_path) as file:
        return ParquetFile(file).read(columns=[column]).column(0)


def write_rows(table: Any, rows: Any) -> Any:
    """Write an Arrow table to a new data file, which belongs to the table once a commit names it."""
    from pyiceberg.io.pyarrow import pyarrow_to_schema, write_file  # noqa: PLC0415
    from pyiceberg.table import WriteTask  # noqa: PLC0415

    schema = pyarrow_to_schema(rows.schema, name_mapping=table.schema().name_mapping)
    batches = rows.combine_chunks().to_batches()
    task = WriteTask(write_uuid=uuid4(), task_id=0, schema=schema, record_batches=batches)
    (file,) = write_file(table.io, table.metadata, iter([task]))
    return file


def remove_files(table: Any, files: Iterable[Any]) -> None:
    """Delete data files that no version of the table names; what cannot be deleted is swept later."""
    for file in files:
        with suppress(Exception):
            table.io.delete(file.file_path)


def touch_files(files: Iterable[Any]) -> None:
    """Set the time of local files that have left the table, so that `sweep` leaves them to readers for a while."""
    for file in files:
        if (path := local_path(file.file_path)) is not None:
            with suppress(OSError):
                path.touch()


def is_small(task: Any) -> bool:
    """Return whether a file is to be merged: it has few rows, or some that the table deletes."""
    return task.file.record_count < FILE_ROWS or bool(task.delete_files)


def group_small(tasks: Iterable[Any]) -> Iterator[list[Any]]:
    """Split small data files into groups that each become one file of at least `FILE_ROWS` rows, except the last."""
    group: list[Any] = []
    for task in tasks:
        if not is_small(task):
            continue
        group.append(task)
        if sum(member.file.record_count for member in group) >= FILE_ROWS:
            yield group
            group = []
    if group:
        yield group
