"""Inputs that go all the way: bytes through an ingest to answers, and runs whose files somebody changed."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import duckdb
import msgspec

import lostflops as lf
from lostflops.core.defects import PLEASE_REPORT
from lostflops.core.errors import BrokenRun, LostflopsError, RunError
from lostflops.ingest import ingest
from lostflops.store.manifest import FILE_NAME, Manifest, encode_manifest
from lostflops.store.tables import TABLES
from tests.fuzz import mutations, seeds
from tests.fuzz.scratch import scratch

VERBS: Final = ("report", "diagnose", "whatif")
_NAMES: Final = (
    (b"\x89LFC", "rank-00000.capture"),
    (b"SQLite format 3\0", "rank0.sqlite"),
    (b"PK", "rank-00000.w0000.parts"),
    (b"PAR1", "ops.parquet"),
    (b"\x80", "_dump_0"),
)


def check_whole(data: bytes) -> None:
    """Ingest a file and ask its run; an ingest that reports a defect of ours has one."""
    name = next((name for magic, name in _NAMES if data.startswith(magic)), "rank0_trace.json")
    source, run = scratch() / name, scratch() / "run"
    shutil.rmtree(run, ignore_errors=True)
    source.write_bytes(data)
    try:
        summary = ingest([source], run, workers=1)
    except LostflopsError as error:
        check_message(error)
        raise
    finally:
        source.unlink()
    assert not any(PLEASE_REPORT in reason for _, reason in summary.skipped), summary.skipped
    try:
        with lf.open(run) as opened:
            _ask(opened)
    except BrokenRun as error:
        raise AssertionError(f"ingested, and then: {error}") from error


def check_message(error: LostflopsError) -> None:
    """Raise if the error says nothing, or that it is a defect of ours."""
    said = str(error)
    if not said.strip() or PLEASE_REPORT in said:
        raise AssertionError(f"{type(error).__name__}: {said}") from (error.__cause__ or error)


def _ask(opened: lf.TrainingRun) -> None:
    for verb in VERBS:
        try:
            getattr(opened, verb)().to_json()
        except RunError:
            raise
        except LostflopsError as error:
            check_message(error)


# Opening a run.

_VALUES: Final[dict[str, Sequence[Any]]] = {
    "INTEGER": (None, -1, 0, 1, 2, 3, 1000, (1 << 31) - 1, -(1 << 31)),
    "BIGINT": (None, -1, 0, 1, 5, 10**6, 10**12, 1 << 61, (1 << 63) - 1, -(1 << 63)),
    "VARCHAR": (
        None,
        "",
        "x" * 5000,
        "[1",
        "{}",
        "null",
        "nccl:all_reduce",
        "0",
        "forward",
        "[[2, 3]]",
        "Float",
        "[0]",
    ),
    "DOUBLE": (None, "nan", "inf", -1e300, 0, 0.5),
    "BOOLEAN": (None, True, False),
    "BLOB": (None, "", "abc"),
}
_ROWS: Final = ("true", "row % 2 = 0", "row % 2 = 1", "row % 3 = 0", "row % 7 = 0", "row = 1", "row > 3", "row < 40")
_FILES: Final = b"file\n"


def forgeries() -> list[bytes]:
    """Seeds: the run as it is, with a changed column, and with a file that is given as it is."""
    files = seeds.run_files()
    forged = [[], [["events", "step", None, 1]], [["events", "dur", 0, 2]], [["collectives", "group_id", "0", 0]]]
    return [
        *(json.dumps(changes).encode() for changes in forged),
        *(_FILES + name.encode() + b"\n" + files[name] for name in _listed_files()[:2]),
    ]


def _listed_files() -> list[str]:
    files = seeds.run_files()
    tables = {name.split("/")[2]: name for name in files if name.startswith("data/")}
    return [FILE_NAME, *tables.values()]


def mutate_run(chance: random.Random, data: bytes) -> bytes:
    if data.startswith(_FILES) and data.count(b"\n") > 1:
        _, name, content = data.split(b"\n", 2)
        if chance.random() < 0.2:
            other = chance.choice(_listed_files())
            name, content = other.encode(), seeds.run_files()[other]
        mutation = mutations.sealed if name == FILE_NAME.encode() else mutations.parquet
        return _FILES + name + b"\n" + mutation(chance, content)
    try:
        changes = json.loads(data)
        assert isinstance(changes, list)
    except (ValueError, AssertionError):
        changes = []
    if changes and chance.random() < 0.3:
        del changes[chance.randrange(len(changes))]
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        table = chance.choice([table for table in TABLES if any(f"/{table.name}/" in name for name in _listed_files())])
        column = chance.choice(table.columns)
        value = chance.choice((*_VALUES[column.type], "other row"))
        changes.append([table.name, column.name, value, chance.randrange(len(_ROWS))])
    return json.dumps(changes[:12]).encode()


def check_opened(data: bytes) -> None:
    """Open a run after changes, with checksums that fit, and ask it."""
    folder = scratch() / "opened"
    shutil.rmtree(folder, ignore_errors=True)
    files = dict(seeds.run_files())
    if data.startswith(_FILES) and data.count(b"\n") >= 2:
        _, name, content = data.split(b"\n", 2)
        chosen = name.decode(errors="replace")
        if chosen not in files:
            return
        files[chosen] = content
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    if not data.startswith(_FILES):
        _forge(folder, data)
    if not data.startswith(_FILES + FILE_NAME.encode()):
        _repair_checksums(folder, seeds.run_files()[FILE_NAME])
    with lf.open(folder) as opened:
        _ask(opened)


def _forge(folder: Path, data: bytes) -> None:
    """Carry out changes: lists of table, column, value and which rows; anything else is left out."""
    try:
        changes = json.loads(data)
    except (ValueError, RecursionError):
        return
    columns = {(table.name, column.name): column.type for table in TABLES for column in table.columns}
    for change in changes[:12] if isinstance(changes, list) else ():
        if not (isinstance(change, list) and len(change) == 4 and all(isinstance(part, str) for part in change[:2])):
            continue
        table, column, value, rows = change
        kind = columns.get((table, column))
        if kind is None or type(rows) is not int or isinstance(value, (list, dict)):
            continue
        for path in sorted(folder.glob(f"data/*/{table}/*.parquet")):
            _replace_column(path, column, kind, value, _ROWS[rows % len(_ROWS)])


_database: Final = duckdb.connect(config={"threads": 1})


def _replace_column(path: Path, column: str, kind: str, value: Any, rows: str) -> None:
    other = f"lead({column}, 3) over ()" if value == "other row" else f"try_cast($value as {kind})"
    forged = path.with_suffix(".forged")
    chosen = f"case when {rows} then {other} else {column} end"
    source = f"(select *, row_number() over () as row from '{path}')"
    query = f"copy (select * exclude (row) replace ({chosen} as {column}) from {source}) to '{forged}' (format parquet)"
    _database.execute(query, {} if value == "other row" else {"value": None if value is None else str(value)})
    forged.replace(path)


def _repair_checksums(folder: Path, text: bytes) -> None:
    manifest = msgspec.json.decode(text, type=Manifest)
    for own in manifest.files.values():
        for file in own:
            content = (folder / file.path).read_bytes()
            file.bytes, file.crc32 = len(content), crc32(content)
    (folder / FILE_NAME).write_bytes(encode_manifest(manifest))
