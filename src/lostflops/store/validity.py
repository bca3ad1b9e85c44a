"""Rows that no writer of ours makes: files of a run from somebody else may hold any values.

All rows are looked at once, when a run is first opened on this machine. Runs that were written here, or were looked at,
have a mark in the user's cache: the digest of their manifest, which has the checksums of all files.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import duckdb
import msgspec

from lostflops.core.errors import BrokenRun
from lostflops.core.limits import LARGEST_WORLD, MOST_LANES
from lostflops.core.units import pluralise
from lostflops.store.checksums import check_tables
from lostflops.store.manifest import Manifest
from lostflops.store.parquet import FARTHEST
from lostflops.store.places import cache_folder
from lostflops.store.tables import DERIVED, RANKS, TABLES, Column, TableSchema

_PERIOD_SECONDS: Final = 90 * 24 * 3600
"""Marks have a folder for each period; those of this and of the last one count, and older folders are removed."""
_RANK_NUMBERS: Final = ("rank", "late_rank")
_LANES: Final = ("lane", "from_lane", "to_lane")
_AT_LEAST_0: Final = (
    *("dur", "ns", "wait", "longest", "gap_ns", "occupied_ns", "wall", "compute", "comm", "hidden", "count"),
    *("events", "ordinal", "attempt", "number", "position", "microbatch", "chunk", "stage", "parts"),
    *("place", "records", "received", "sent", "resent"),
)
_LARGEST: Final = 2**63 - 1
_JSON_LISTS: Final = ("notes", "running", "shape", "local_shape")
_JSON: Final = (*_JSON_LISTS, "value", "document")
_REQUIRED: Final = {
    "lanes": ("lane", "kind"),
    "events": ("event", "lane", "kind", "start", "dur"),
    "steps": ("step", "start", "stop"),
    "groups": ("group_id",),
    "collectives": ("event", "start", "stop"),
    "links": ("from_lane", "from_start", "to_lane", "to_start"),
    "nccl_comms": ("comm", "comm_rank", "size", "host", "process", "device_index", "bus", "is_complete"),
    "nccl_links": ("comm", "sender", "receiver", "transport", "channels"),
    "nccl_choices": ("bytes", "algorithm", "protocol", "count"),
    "passes": ("start", "stop"),
    "arrivals": ("meeting", "is_transfer", "seen"),
    "attempts": ("attempt",),
    "timings": ("attempt", "step", "start", "stop"),
    "network": ("attempt", "time", "scope", "received", "sent"),
    "marks": ("attempt", "number", "name", "time"),
    "job": ("attempt", "key", "value"),
    "samples": ("time", "stack"),
    "stats": ("what", "effect", "count"),
    "accounts": ("code", "inputs"),
    "spans": ("start", "stop", "kernels"),
    "stretches": ("start", "stop", "line"),
    "ledger": ("split", "line", "ns", "place"),
    "waits": ("group_id", "late_rank", "is_transfer", "ns"),
    "overlap": ("ns",),
    "kernels": ("kind", "name", "count", "ns", "gap_ns", "occupied_ns", "occupancy"),
    "work": ("op", "model_flops", "recompute_flops", "bytes", "again", "count", "ns"),
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
    ("stats", "effect"): ("dropped", "repaired", "guessed", "missing", "note"),
    ("accounts", "scope"): ("steps", "trace"),
    ("ledger", "split"): ("line", "detail", "step", "phase", "job_phase", "annotation", "module"),
    ("network", "scope"): ("host", "process"),
    ("findings", "level"): ("found", "suspected"),
}
"""Columns with a few known values."""
_LINES: Final = (
    *("compute", "comm.transfer", "comm.wait", "comm.bubble", "copy", "idle.data", "idle.sync", "idle.alloc"),
    *("idle.compile", "idle.host", "idle.python", "idle.dependency", "idle.bubble", "unexplained"),
)
_OF_LEDGER: Final = ("ledger", "stretches", "stacks")
_TOTALS: Final = (
    *("on_device", "wall", "compute", "comm", "hidden", "kernels", "unlaunched", "blocker", "launched_flops"),
    *("matmul_ns", "counted_ns", "tensor_ns", "plain_ns", "notes"),
)
"""Columns of `accounts` that are all null, or none is."""
_TEXT: Final = r'"([^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*"'
_TEXTS: Final = rf"\[({_TEXT}(, ?{_TEXT})*)?\]"
"""A JSON list of texts; DuckDB takes more than JSON for JSON."""
_OTHER_FAULTS: Final = {
    "overlap": [
        ("no texts in running", f"NOT regexp_full_match(running, '{_TEXTS}')"),
        ("a group without its hidden time", "group_id IS NOT NULL AND hidden IS NULL"),
    ],
    "accounts": [
        ("no texts in notes", f"NOT regexp_full_match(notes, '{_TEXTS}')"),
        ("some totals and not others", " OR ".join(f"({name} IS NULL) <> (wall IS NULL)" for name in _TOTALS)),
    ],
    "timeline": [("other parts than stated", "octet_length(lines) <> parts")],
}
_OPEN_LEDGERS: Final = """
    SELECT count(*) FROM accounts
    LEFT JOIN (SELECT rank, sum(ns) AS spent FROM ledger WHERE split = 'line' GROUP BY 1) USING (rank)
    LEFT JOIN (SELECT rank, sum(stop - start) AS span, count(step) AS steps, count(*) AS spans FROM spans GROUP BY 1)
        USING (rank)
    WHERE wall IS NOT NULL AND (
        coalesce(spent, 0) <> wall OR coalesce(span, 0) <> wall OR (scope = 'steps' AND steps < spans))"""


def check_values(folder: Path, manifest: Manifest, connection: duckdb.DuckDBPyConnection) -> bool:
    """Raise `BrokenRun` if recorded tables have other types than declared, or rows that no reader makes.

    Return whether the derived tables can be used: those of a newer version, or that were changed, can not, and are
    computed again from the recorded ones.
    """
    check_tables(folder, manifest, manifest.files)
    recorded = (table for table in TABLES if table not in DERIVED)
    if fault := next(_find_faults(recorded, manifest, connection), None):
        raise BrokenRun(f"{folder}: {fault}. No recording has that: do not use this run.")
    try:
        is_derived_valid = next(_find_faults(DERIVED, manifest, connection), None) is None
        is_derived_valid = is_derived_valid and not connection.execute(_OPEN_LEDGERS).fetchall()[0][0]
    except duckdb.Error:
        is_derived_valid = False
    if is_derived_valid:
        mark_run(manifest)
    return is_derived_valid


def mark_run(manifest: Manifest) -> None:
    """Store that the rows of a run were written here, or have been looked at."""
    if any(file.crc32 < 0 for files in manifest.files.values() for file in files):
        return  # its files may change without a change of the manifest
    with suppress(OSError):  # then they are looked at again
        new, last = _marks(manifest)
        is_new_period = not new.parent.is_dir()
        new.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new.touch()
        if is_new_period:
            for old in set(new.parent.parent.iterdir()) - {new.parent, last.parent}:
                shutil.rmtree(old, ignore_errors=True) if old.is_dir() else old.unlink(missing_ok=True)


def is_marked(manifest: Manifest) -> bool:
    """Return whether the rows of a run were written here, or have been looked at."""
    with suppress(OSError):
        new, last = _marks(manifest)
        if new.exists():
            return True
        if last.exists():
            mark_run(manifest)
            return True
    return False


def _marks(manifest: Manifest) -> tuple[Path, Path]:
    """Return the mark of a run in this period, and in the last one."""
    digest = hashlib.sha256(msgspec.json.encode(manifest)).hexdigest()
    period = int(time.time() // _PERIOD_SECONDS)
    folder = cache_folder() / "checked"
    return folder / str(period) / digest, folder / str(period - 1) / digest


def _find_faults(
    tables: Iterable[TableSchema], manifest: Manifest, connection: duckdb.DuckDBPyConnection
) -> Iterator[str]:
    """Yield in words what is wrong with tables. Columns that are newer than the run are null, which is not wrong."""
    for table in tables:
        if not manifest.files.get(table.name):
            continue
        for column, kind in zip(table.columns, connection.table(table.name).types, strict=True):
            if str(kind) != column.type:
                yield f"column {column.name} of table {table.name} has type {str(kind)[:40]} instead of {column.type}"
                return
        faults = list(_faults(table, manifest.columns.get(table.name, ())))
        counts = ", ".join(f"count(*) FILTER ({condition})" for _, condition in faults)
        [found] = connection.execute(f"SELECT {counts} FROM {table.name}").fetchall()
        for (what, _), count in zip(faults, found, strict=True):
            if count:
                yield f"table {table.name} has {pluralise(count, 'row')} with {what}"


def _faults(table: TableSchema, written: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield in words, and as SQL, what no row of a table may be."""
    names = [name for name in table.column_names() if name in written]
    for name in ("rank", *_REQUIRED.get(table.name, ())):
        if name in names:
            yield f"no {name}", f"{name} IS NULL"
    for column in table.columns:
        yield from _faults_of_column(table, column)
    for first, last in (("start", "stop"), ("device_start", "device_stop")):
        if {first, last} <= set(names):
            yield f"{last} before {first}", f"{last} < {first}"
    yield from _OTHER_FAULTS.get(table.name, ())


def _faults_of_column(table: TableSchema, column: Column) -> Iterator[tuple[str, str]]:
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


def _limits(table: TableSchema, column: Column) -> tuple[int, int] | None:
    """Return the smallest and the largest value of a column; None if a reader may write any."""
    if column.type not in ("INTEGER", "BIGINT"):
        return None
    if column.name in _RANK_NUMBERS:
        return 0, LARGEST_WORLD - 1
    if table is RANKS and column.name == "world_size":
        return 0, LARGEST_WORLD
    if column.name in _LANES:
        return 0, MOST_LANES
    if column.name in _AT_LEAST_0:
        return 0, FARTHEST if column.unit == "ns" else _LARGEST
    return (-FARTHEST, FARTHEST) if column.unit == "ns" else None
