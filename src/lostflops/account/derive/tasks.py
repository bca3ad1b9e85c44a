"""Accounts of some ranks, computed where their rows are and written as files of the derived tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from lostflops.account.align.one_clock import OneClock
from lostflops.account.derive.timeline import TimelineSpan, strip_of
from lostflops.account.ledger.accounts import account_with_kernels
from lostflops.account.ledger.record import records
from lostflops.account.ledger.stretches import cut_stretches
from lostflops.account.ledger.strips import whole
from lostflops.account.ledger.to_rows import AccountRows
from lostflops.account.ledger.windows import WindowKind, window
from lostflops.core.errors import RunError
from lostflops.store.derived import data_digest
from lostflops.store.memory_limit import limit_database
from lostflops.store.parquet import ColumnData, ParquetWriter
from lostflops.store.run import Run
from lostflops.store.scratch import scratch_folder
from lostflops.store.spread.work import OnRead, Work
from lostflops.store.tables import TIMELINE, TableSchema


class DeriveTask(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks of a run to account for."""

    run: str
    data: str
    """Digest of the data of the run."""
    kind: WindowKind
    ranks: list[int]
    accounts: dict[int, str]
    """Ranks that need an account, each with the digest of its inputs; the others need only their timeline."""
    code: str
    span: TimelineSpan | None
    stem: str
    """Name of its files, without `.parquet`."""


class DerivedFile(msgspec.Struct, frozen=True):
    """A Parquet file of a derived table: small, so that it is sent and not shared."""

    table: str
    name: str
    ranks: list[int]
    data: bytes


def derive_ranks(task: DeriveTask, _: OnRead) -> list[DerivedFile]:
    """Account for the ranks of a task, in a process of its own."""
    with Run.open(task.run, {"threads": 1, "memory_limit": limit_database(10**9)}) as run:
        if data_digest(run.manifest) != task.data:
            raise RunError(f"{task.run} changed while it was read. Run the command again.")
        return derive_from(run, task)


def derive_from(run: Run, task: DeriveTask) -> list[DerivedFile]:
    """Account for the ranks of a task from an open run."""
    made, drawn, accounted = AccountRows(), list[tuple[int, bytes]](), list[int]()
    clock = OneClock.of(run)
    for record in records(run, task.ranks):
        recorded = whole(record)
        if record.rank in task.accounts:
            ledger, kernels = account_with_kernels(record, window(record, task.kind))
            stretches = cut_stretches(record, recorded)
            made.add(ledger, kernels, stretches, code=task.code, inputs=task.accounts[record.rank])
            accounted.append(record.rank)
        if task.span is not None:
            drawn.append((record.rank, strip_of(record.rank, recorded, clock, task.span)))
    return _write_files(task, made, accounted, drawn)


def _write_files(
    task: DeriveTask, made: AccountRows, accounted: list[int], drawn: list[tuple[int, bytes]]
) -> list[DerivedFile]:
    writer, files = ParquetWriter(), list[DerivedFile]()

    def write(table: TableSchema, ranks: list[int], columns: Mapping[str, ColumnData]) -> None:
        path = folder / f"{table.name}.parquet"
        writer.write(table, columns, path)
        files.append(DerivedFile(table.name, f"{task.stem}.parquet", ranks, path.read_bytes()))

    with scratch_folder() as folder:
        for table, columns in made.tables():
            write(table, accounted, columns)
        if drawn and task.span is not None:
            span, count = task.span, len(drawn)
            ranks = [rank for rank, _ in drawn]
            timeline: dict[str, ColumnData] = {
                "rank": ranks,
                "start": [span.start] * count,
                "stop": [span.stop] * count,
                "parts": [span.parts] * count,
                "lines": [strip for _, strip in drawn],
            }
            write(TIMELINE, ranks, timeline)
    writer.close()
    return files


WORK: Final = Work(
    "derive", DeriveTask, list[DerivedFile], derive_ranks, about=lambda task: f"{task.run}, rank {task.ranks[0]}"
)
