"""Rows that no writer of ours makes: files of a run that somebody passed on may hold any values.

All rows are looked at once, when a run is first opened on this machine. Runs that were written here, or have passed,
are remembered in the user's cache by the digest of their manifest, which has the checksums of all files.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import duckdb

from lostflops.core.errors import BrokenRun
from lostflops.core.limits import LARGEST_WORLD, MOST_LANES
from lostflops.store.manifest import FILE_NAME, Manifest
from lostflops.store.parquet import FARTHEST
from lostflops.store.tables import TABLES, Column, TableSchema

_RANKS: Final = ("rank", "reference", "late_rank", "peer", "local_rank")
_SIZES: Final = ("size", "group_size", "world_size", "expected", "seen")
_LANES: Final = ("lane", "from_lane", "to_lane")
_AT_LEAST_0: Final = (
    *("dur", "ns", "wait", "longest", "gap_ns", "occupied_ns", "wall", "compute", "comm", "hidden"),
    *("events", "ordinal", "attempt", "position", "microbatch", "chunk", "stage", "parts", "place", "records"),
)
_MOST: Final = 1 << 61
"""Limit of bytes, FLOPs and counts: sums of a few of them fit into 64 bits."""
_JSON_LISTS: Final = ("notes", "running", "shape", "local_shape")
_JSON: Final = (*_JSON_LISTS, "value", "document")
_REQUIRED: Final = {
    "lanes": ("lane", "kind"),
    "events": ("event", "lane", "kind", "start", "dur"),
    "steps": ("step", "start", "stop"),
    "groups": ("group_id",),
    "collectives": ("event", "op", "start", "stop"),
    "memory": ("time", "bytes"),
    "links": ("from_lane", "from_start", "to_lane", "to_start"),
    "passes": ("step", "direction", "start", "stop"),
    "clocks": ("reference", "method"),
    "arrivals": ("meeting", "is_transfer", "seen"),
    "attempts": ("attempt", "session"),
    "timings": ("attempt", "step", "start", "stop"),
    "parameters": ("position", "name"),
    "job": ("attempt", "key", "value"),
    "samples": ("time", "stack"),
    "stats": ("what", "effect", "count"),
    "accounts": ("code", "inputs"),
    "stretches": ("start", "stop", "line"),
    "ledger": ("split", "line", "ns", "place"),
    "waits": ("group_id", "late_rank", "is_transfer", "ns"),
    "overlap": ("ns",),
    "kernels": ("kind", "name", "count", "ns", "gap_ns", "occupied_ns", "occupancy"),
    "work": ("op", "model_flops", "recompute_flops", "bytes", "again", "count", "ns"),
    "spans": ("start", "stop", "kernels"),
    "stacks": ("line", "stack", "count", "ns", "place"),
    "timeline": ("start", "stop", "parts", "lines"),
    "findings": ("number", "id", "level", "cause"),
    "diagnosis": ("code", "document"),
}
"""Columns without nulls, besides `rank`."""
_WORDS: Final = {
    ("lanes", "kind"): ("thread", "stream"),
    ("events", "kind"): (
        *("op", "annotation", "module", "python", "runtime", "host_comm", "overhead", "span", "other"),
        *("kernel", "comm", "memcpy", "memset", "sync", "device_annotation"),
    ),
    ("passes", "direction"): ("forward", "backward"),
    ("stats", "effect"): ("dropped", "repaired", "guessed", "missing", "note"),
    ("accounts", "scope"): ("steps", "trace"),
    ("ledger", "split"): ("line", "detail", "step", "phase", "annotation", "module"),
    ("findings", "level"): ("found", "suspected"),
    ("allocator_blocks", "state"): ("allocated", "pending", "free"),
}
"""Columns with a few known values."""
_TOTALS: Final = (
    *("on_device", "wall", "compute", "comm", "hidden", "kernels", "unlaunched", "blocker", "launched_flops"),
    *("matmul_ns", "counted_ns", "tensor_ns", "plain_ns", "notes"),
)
"""Columns of `accounts` that are all null, or none is."""
_OPEN_LEDGERS: Final = """
    SELECT count(*) FROM accounts
    LEFT JOIN (SELECT rank, sum(ns) AS spent FROM ledger WHERE split = 'line' GROUP BY 1) USING (rank)
    LEFT JOIN (SELECT rank, sum(stop - start) AS span, count(step) AS steps, count(*) AS spans FROM spans GROUP BY 1)
        USING (rank)
    WHERE wall IS NOT NULL AND (
        coalesce(spent, 0) <> wall OR coalesce(span, 0) <> wall OR (scope = 'steps' AND steps < spans))"""
_OTHER_DOUBTS: Final = {
    "overlap": [("a group without its hidden time", "group_id IS NOT NULL AND hidden IS NULL")],
    "accounts": [
        ("some totals and not others", " OR ".join(f"({name} IS NULL) <> (wall IS NULL)" for name in _TOTALS))
    ],
    "timeline": [("other parts than stated", "octet_length(lines) <> parts")],
}
_LINES: Final = (
    *("compute", "comm.transfer", "comm.wait", "comm.bubble", "copy", "idle.data", "idle.sync", "idle.alloc"),
    *("idle.compile", "idle.host", "idle.python", "idle.dependency", "idle.bubble", "unexplained"),
)


def check_values(folder: Path, manifest: Manifest, connection: duckdb.DuckDBPyConnection) -> None:
    """Raise `BrokenRun` if a table has other types than declared, or rows that no writer makes."""
    if not manifest.sources:
        raise BrokenRun(f"{folder} has no ranks. Ingest its traces again.")
    if _mark(folder).exists():
        return
    for table in TABLES:
        if manifest.files.get(table.name):
            _check_table(folder, table, connection, manifest.columns.get(table.name, ()))
    [(count,)] = connection.execute(_OPEN_LEDGERS).fetchall()
    if count:
        raise BrokenRun(f"{folder}: the ledgers of {count:,} ranks do not sum to their time. Do not use this run.")
    remember_run(folder)


def remember_run(folder: Path) -> None:
    """Remember that the rows of a run, as its manifest names them now, were written here or have been checked."""
    with suppress(OSError):  # then they are checked again
        mark = _mark(folder)
        mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mark.touch()


def _mark(folder: Path) -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    digest = hashlib.sha256((folder / FILE_NAME).read_bytes()).hexdigest()
    return Path(cache) / "lostflops" / "checked" / digest


def _check_table(
    folder: Path, table: TableSchema, connection: duckdb.DuckDBPyConnection, written: Collection[str]
) -> None:
    """Check a table; columns that are newer than the run, which are not `written`, are null."""
    view = connection.table(table.name)
    for column, kind in zip(table.columns, view.types, strict=True):
        if str(kind) != column.type:
            raise BrokenRun(
                f"{folder}: column {column.name} of table {table.name} has type {str(kind)[:40]} instead of "
                f"{column.type}. Do not use this run."
            )
    doubts = list(_doubts(table, written))
    counts = ", ".join(f"count(*) FILTER ({condition})" for _, condition in doubts)
    [found] = connection.execute(f"SELECT {counts} FROM {table.name}").fetchall()
    for (what, _), count in zip(doubts, found, strict=True):
        if count:
            raise BrokenRun(
                f"{folder}: table {table.name} has {count:,} rows with {what}, which no recording has. Do not use "
                "this run, or ingest its traces again."
            )


def _doubts(table: TableSchema, written: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield in words, and as SQL, what no row of a table may be."""
    names = table.column_names()
    for name in ("rank", *_REQUIRED.get(table.name, ())):
        if name in names and name in written:
            yield f"no {name}", f"{name} IS NULL"
    for column in table.columns:
        yield from _doubts_of_column(table, column)
    for first, last in (("start", "stop"), ("device_start", "device_stop")):
        if {first, last} <= set(names):
            yield f"{last} before {first}", f"{last} < {first}"
    yield from _OTHER_DOUBTS.get(table.name, ())


def _doubts_of_column(table: TableSchema, column: Column) -> Iterator[tuple[str, str]]:
    name, limits = column.name, _limits(table, column)
    if limits is not None:
        # `xor` keeps DuckDB from answering by statistics, which a file may state falsely.
        yield f"an impossible {name}", f"xor({name}, 0) NOT BETWEEN {limits[0]} AND {limits[1]}"
    if column.type == "DOUBLE":
        yield f"no finite {name}", f"NOT isfinite({name})"
    words = _LINES if name == "line" and table.name in _OF_LEDGER else _WORDS.get((table.name, name))
    if words:
        yield f"an unknown {name}", f"{name} NOT IN {words}"
    if name in _JSON and column.type == "VARCHAR":
        yield f"no JSON in {name}", f"NOT json_valid({name})"
    if name in _JSON_LISTS:
        yield f"no list in {name}", f"json_valid({name}) AND json_type({name}) <> 'ARRAY'"


_OF_MEMORY: Final = ("memory", "holdings", "allocator_blocks")
_MOST_MEMORY: Final = 1 << 50
"""Limit of memory: no device has a petabyte."""
_OF_LEDGER: Final = ("ledger", "stretches", "stacks")


def _limits(table: TableSchema, column: Column) -> tuple[int, int] | None:
    """Return the smallest and the largest value of a column; None if any is possible."""
    if column.type not in ("INTEGER", "BIGINT"):
        return None
    if column.name in _RANKS:
        return 0, LARGEST_WORLD - 1
    if column.name in _SIZES:
        return 0, LARGEST_WORLD
    if column.name in _LANES:
        return 0, MOST_LANES
    if column.name in _AT_LEAST_0:
        return 0, FARTHEST if column.unit == "ns" else _MOST
    if column.name == "count":  # a lossy source may state any number
        return 0, 2**63 - 1
    if column.unit == "ns":
        return -FARTHEST, FARTHEST
    if column.unit == "bytes" and table.name in _OF_MEMORY:
        return -_MOST_MEMORY, _MOST_MEMORY
    return (-_MOST, _MOST) if column.unit in ("bytes", "FLOPs") else None
