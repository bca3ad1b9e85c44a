"""An export of Nsight Systems as a base input of the fuzz test, and ways to damage it that only a database knows."""

from __future__ import annotations

import functools
import random
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.made_nsys import small_export

_VALUES: tuple[Any, ...] = (
    None, -1, 0, 1, 1 << 31, 1 << 32, 1 << 61, (1 << 63) - 1, -(1 << 63), 1.5, 1e300, float("inf"), "", "text", "12",
    "step 3", "ProfilerStep#999999999", "aten::mm, seq = 1, op_id = 2", "nccl:all_reduce, op_id = 3",
    "ncclGroupStart", '{"Message size [bytes]": 99999999999999999999}', "[" * 5_000, b"", b"\xff\x00",
    "\ud7ff\u202e<script>", "x" * 100_000,
)  # fmt: skip


@functools.cache
def export() -> bytes:
    return _changed(None, lambda _connection: None)


def odd_cells(chance: random.Random, data: bytes) -> bytes:
    """Values of any type and size, in one row or in a whole column."""

    def change(connection: sqlite3.Connection) -> None:
        table, columns = _table(chance, connection)
        column, value = chance.choice(columns), chance.choice(_VALUES)
        where = "" if chance.random() < 0.3 else f"where rowid % 3 = {chance.randrange(3)}"
        connection.execute(f'update "{table}" set "{column}" = ? {where}', (value,))

    return _changed(data, change)


def odd_schema(chance: random.Random, data: bytes) -> bytes:
    """Tables and columns that are gone, renamed, views, or watched by triggers."""

    def change(connection: sqlite3.Connection) -> None:
        table, columns = _table(chance, connection)
        column = chance.choice(columns)
        other = chance.choice((
            f'drop table "{table}"',
            f'alter table "{table}" rename column "{column}" to "odd; name"',
            f'alter table "{table}" add column "more" generated always as (abs(random())) virtual',
            f'alter table "{table}" rename to "it\'s gone"',
            f'create trigger t after insert on "{table}" begin delete from "{table}"; end',
        ))  # fmt: skip
        connection.execute(other)
        if other.startswith("drop") and chance.random() < 0.5:
            connection.execute(f'create view "{table}" as select * from "{table}"')

    return _changed(data, change)


def lying_pages(chance: random.Random, data: bytes) -> bytes:
    """Bytes of the header and of the first pages' own, where sizes, counts and pointers stand."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 2, 8))):
        page = chance.randrange(len(data) // 4096 + 1) * 4096
        changed[min(page + chance.randrange(128), len(data) - 1)] = chance.choice((0, 1, 5, 13, 127, 128, 255))
    return bytes(changed)


EXPORT_MUTATIONS: tuple[Callable[[random.Random, bytes], bytes], ...] = (odd_cells, odd_cells, odd_schema, lying_pages)


def _table(chance: random.Random, connection: sqlite3.Connection) -> tuple[str, list[str]]:
    names = connection.execute("select name from sqlite_master where type = 'table' order by name").fetchall()
    table = chance.choice(names)[0]
    return table, [row[1] for row in connection.execute(f'pragma table_info("{table}")')]


def _changed(data: bytes | None, change: Callable[[sqlite3.Connection], None]) -> bytes:
    """The file after a change; as it is where it is too damaged for one."""
    with tempfile.TemporaryDirectory(prefix="lostflops-fuzz-") as folder:
        path = Path(folder, "export.sqlite")
        if data is None:
            made = small_export()
            made.range("ncclAllReduce", 10_515, 10_590, jsonText='{"Message size [bytes]": 4096}')
            return made.write(path).read_bytes()
        path.write_bytes(data)
        connection = sqlite3.connect(path)
        try:
            change(connection)
            connection.commit()
        except (sqlite3.Error, IndexError):
            return data
        finally:
            connection.close()
        return path.read_bytes()
