"""Digests of the inputs of derived rows: rows are kept while their digests stay the same.

Files of a run never change: a rank with new rows has a new file. Arrivals and clocks are written again by every ingest,
so they are compared by content.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import duckdb
import msgspec

from lostflops.core.errors import RunError
from lostflops.store.commit import RunWriter
from lostflops.store.connections import connect
from lostflops.store.manifest import DataFile, Manifest
from lostflops.store.parquet import ParquetWriter, scan
from lostflops.store.tables import (
    ACCOUNTS,
    ARRIVALS,
    CLOCKS,
    COLLECTIVES,
    DERIVED,
    EVENTS,
    OF_RANK,
    RANKS,
    SAMPLES,
    STEPS,
    TIMELINE,
    TableSchema,
)

Files = Mapping[str, Sequence[DataFile]]
_OWN: Final = (EVENTS, STEPS, COLLECTIVES, SAMPLES)
"""Tables whose rows of a rank its account is made from."""
_PACKAGE: Final = Path(__file__).resolve().parents[1]
_LOADED: Final = time.time()
_CLOCK: Final = "rank, correction, drift, instant, spread, uncertainty"


@cache
def code_digest(*parts: str) -> str:
    """Return a digest of the code in some folders or files of this package.

    Other code has another digest, so its results are computed again, without a version number.
    """
    found, newest = hashlib.sha256(), 0.0
    for part in parts:
        place = _PACKAGE / part
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            found.update(f"{path.relative_to(_PACKAGE)}\0".encode())
            found.update(path.read_bytes())
            newest = max(newest, path.stat().st_mtime)
    # A file that changed after this process loaded it is not the code that runs here.
    return found.hexdigest()[:16] + (f"-{os.getpid()}" if newest > _LOADED else "")


def data_digest(manifest: Manifest) -> str:
    """Return a digest of the run's recorded rows; derived tables do not change it."""
    own = {RANKS.name, *(table.name for table in DERIVED)}
    files = sorted(file.path for name, kept in manifest.files.items() if name not in own for file in kept)
    return _digest([files, sorted((source.rank, source.format, source.hash) for source in manifest.sources)])


def account_code() -> str:
    """Return the digest of the code that accounts for a rank."""
    return code_digest(
        "account/align", "account/derive", "account/facts", "account/ledger", "store/intervals.py", "store/tables.py"
    )


def digest_inputs(files: Files, at: Callable[[DataFile], Path], hosts: Mapping[int, str | None]) -> dict[int, str]:
    """Return by rank a digest of the rows that its account is made from; `hosts` has every rank of the run."""
    own: dict[int, list[str]] = {rank: [] for rank in hosts}
    for table in _OWN:
        for file in files.get(table.name, ()):
            for rank in file.ranks:
                own.setdefault(rank, []).append(file.path)
    with connect() as connection:
        for table in (ARRIVALS, CLOCKS):
            paths = [at(file) for file in files.get(table.name, ())]
            nulls = ", ".join(f"CAST(NULL AS {column.type}) AS {column.name}" for column in table.columns)
            rows = f"SELECT * FROM {scan(paths)}" if paths else f"SELECT {nulls} WHERE false"
            connection.execute(f"CREATE TEMP VIEW {table.name} AS {rows}")
        arrived = dict(
            connection.sql(
                "SELECT rank, sum(hash(event, wait, late_rank, is_transfer)::HUGEINT)::VARCHAR FROM arrivals GROUP BY 1"
            ).fetchall()
        )
        clocks = {rank: repr(clock) for rank, *clock in connection.sql(f"SELECT {_CLOCK} FROM clocks").fetchall()}
        # A send ends when its peer has received, so all ends of transfers belong together.
        [(sent,)] = connection.sql(
            "SELECT sum(hash(rank, event, arrived)::HUGEINT)::VARCHAR FROM arrivals WHERE is_transfer"
        ).fetchall()
        ends = connection.sql("SELECT DISTINCT rank FROM arrivals WHERE is_transfer").fetchall()
    senders = {rank for (rank,) in ends}
    calls = sorted(file.path for file in files.get(COLLECTIVES.name, ()) if senders.intersection(file.ranks))
    shared = [sent, calls, sorted(clocks.items()), sorted(hosts.items())]
    return {
        rank: _digest([sorted(paths), arrived.get(rank), clocks.get(rank), shared if rank in senders else None])
        for rank, paths in own.items()
    }


def _digest(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()[:16]


def carry_over(run: RunWriter, files: dict[str, list[DataFile]], hosts: Mapping[int, str | None]) -> None:
    """Add to the files of a new run the accounts of ranks whose rows did not change."""
    old = run.manifest.files
    made = _read_stored_inputs(run, old.get(ACCOUNTS.name, ()))
    if not made:
        return
    inputs = digest_inputs(files, run.at, hosts)
    same = {rank for rank, digest in made.items() if inputs.get(rank) == digest}
    writer = ParquetWriter()
    for table in (*OF_RANK, TIMELINE):
        # A timeline shows all ranks over the time of all.
        if table is TIMELINE and not same == made.keys() == inputs.keys():
            continue
        kept = [run.without(writer, table.name, file, set(file.ranks) - same) for file in old.get(table.name, ())]
        files[table.name] = [file for file in kept if file is not None]
    writer.close()


def _read_stored_inputs(run: RunWriter, files: Sequence[DataFile]) -> dict[int, str]:
    """Return by rank the inputs of its account, if the current code made it."""
    if not {"code", "inputs"} <= set(run.manifest.columns.get(ACCOUNTS.name, ())) or not files:
        return {}
    with connect() as connection:
        rows = connection.sql(
            f"SELECT rank, inputs FROM {scan(run.all_at(files))} WHERE code = '{account_code()}'"
        ).fetchall()
    return dict(rows)


def add_tables(folder: Path, data: str, tables: Mapping[TableSchema, Mapping[str, Sequence[object]]]) -> bool:
    """Replace some derived tables of a run, and return whether that was possible.

    It is not if the data of the run changed since `data` was computed, if the run cannot be written, or if another
    process is writing to it.
    """
    try:
        with RunWriter(folder, is_reader=True) as run:
            if data_digest(run.manifest) != data:
                return False
            files = {name: list(own) for name, own in run.manifest.files.items() if name != RANKS.name}
            ranks = sorted({source.rank for source in run.manifest.sources})
            writer = ParquetWriter()
            for table, columns in tables.items():
                path = run.staging / table.name / "all.parquet"
                writer.write(table, columns, path)
                files[table.name] = [DataFile(path=run.relative(path), format="", ranks=ranks)]
            writer.close()
            run.commit(run.manifest.sources, files)
    except (RunError, OSError, duckdb.Error):
        return False
    return True
