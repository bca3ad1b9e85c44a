"""The account of a rank as rows of the derived tables. `from_rows` reads them back as the same account."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
import numpy as np

from lostflops.account.ledger.accounts import RankLedger
from lostflops.account.ledger.kernel_sums import KernelSums
from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.stretches import RankStretches
from lostflops.account.ledger.windows import WindowKind
from lostflops.store.parquet import ColumnData, TextColumn
from lostflops.store.tables import (
    ACCOUNTS,
    KERNELS,
    LEDGER,
    OF_RANK,
    OVERLAP,
    SPANS,
    STACKS,
    STRETCHES,
    WAITS,
    WORK,
    TableSchema,
)

Row = tuple[Any, ...]
_MOST: Final = 2**63 - 1


class AccountRows:
    """Rows of several ranks, by table."""

    def __init__(self) -> None:
        self._rows: defaultdict[str, list[Row]] = defaultdict(list)
        self._stretches: list[tuple[int, RankStretches]] = []

    def add(self, ledger: RankLedger, kernels: KernelSums, stretches: RankStretches, *, code: str, inputs: str) -> None:
        """Add the account of a rank. If it does not fit into the tables, add only its digests."""
        if not _fits(ledger):
            self._put(ACCOUNTS, ledger.rank, [(code, inputs, *[None] * (len(ACCOUNTS.columns) - 3))])
            return
        self._put(ACCOUNTS, ledger.rank, [_account(ledger, code, inputs)])
        self._put(SPANS, ledger.rank, _spans(ledger))
        self._stretches.append((ledger.rank, stretches))
        self._put(LEDGER, ledger.rank, [(*row, place) for place, row in enumerate(_lines(ledger))])
        self._put(WAITS, ledger.rank, ledger.profile.waited)
        self._put(OVERLAP, ledger.rank, _overlaps(ledger))
        self._put(KERNELS, ledger.rank, _kernels(kernels))
        self._put(WORK, ledger.rank, _work(ledger))
        self._put(STACKS, ledger.rank, [(*row, place) for place, row in enumerate(_stacks(ledger))])

    def _put(self, table: TableSchema, rank: int, rows: Iterator[Row] | list[Row] | tuple[Row, ...]) -> None:
        self._rows[table.name] += [(rank, *row) for row in rows]

    def tables(self) -> Iterator[tuple[TableSchema, dict[str, ColumnData]]]:
        """Yield the columns of each table that has rows."""
        for table in OF_RANK:
            if rows := self._rows[table.name]:
                columns = (list(values) for values in zip(*rows, strict=True))
                yield table, dict(zip(table.column_names(), columns, strict=True))
        if self._stretches:
            yield STRETCHES, _stretch_columns(self._stretches)


def _stretch_columns(ranks: list[tuple[int, RankStretches]]) -> dict[str, ColumnData]:
    """Return the columns as arrays: these rows are many, and as tuples they would take as long as the account."""
    line, late = (np.concatenate([getattr(own, name) for _, own in ranks]) for name in ("line", "late"))
    return {
        "rank": np.repeat([rank for rank, _ in ranks], [own.start.size for _, own in ranks]),
        "start": np.concatenate([own.start for _, own in ranks]),
        "stop": np.concatenate([own.stop for _, own in ranks]),
        "line": TextColumn(line.astype(np.uint32), (None, *LINES)),
        "late_rank": np.where(late < 0, np.iinfo(np.int64).min, late),
    }


def _fits(ledger: RankLedger) -> bool:
    """Return whether the account fits into the tables: FLOPs must be below 2^63, and step numbers unique."""
    number = ledger.window.number
    return ledger.work.launched_flops <= _MOST and len(set(number)) == len(number)


def _account(ledger: RankLedger, code: str, inputs: str) -> Row:
    overlap, work, window = ledger.overlap, ledger.work, ledger.window
    return (
        code,
        inputs,
        window.kind.value,
        ledger.on_device,
        window.wall,
        overlap.compute,
        overlap.comm,
        overlap.hidden,
        ledger.kernels,
        ledger.unlaunched,
        ledger.blocker,
        work.launched_flops,
        work.matmul_ns,
        work.counted_ns,
        work.tensor_ns,
        work.plain_ns,
        msgspec.json.encode(window.notes).decode(),
    )


def _spans(ledger: RankLedger) -> Iterator[Row]:
    window, pieces = ledger.window, ledger.profile.pieces.tolist()
    is_trace = window.kind is WindowKind.TRACE
    for place, (start, stop) in enumerate(zip(window.start.tolist(), window.stop.tolist(), strict=True)):
        # The profile of a trace is one sum.
        own = (pieces[0] if place == 0 else 0) if is_trace else pieces[place]
        yield None if is_trace else window.number[place], start, stop, own


def _lines(ledger: RankLedger) -> Iterator[Row]:
    for line, ns in ledger.lines.items():
        longest = ledger.longest.get(line)
        if ns or longest:
            yield "line", None, None, line, ns, longest and longest.ns, longest and longest.event
    for line, details in ledger.parts.items():
        yield from (("detail", name, None, line, ns, None, None) for name, ns in details.items())
    for number, lines in zip(ledger.window.number, ledger.steps, strict=True):
        yield from (("step", None, number, line, ns, None, None) for line, ns in lines.items() if ns)
    for split, sums in (
        ("phase", ledger.phases),
        ("job_phase", ledger.job_phases),
        ("annotation", ledger.annotations),
        ("module", ledger.modules),
    ):
        yield from _split(split, sums)


def _split(split: str, sums: Mapping[str, Mapping[str, int]]) -> Iterator[Row]:
    for name, lines in sums.items():
        yield from ((split, name, None, line, ns, None, None) for line, ns in lines.items() if ns)


def _overlaps(ledger: RankLedger) -> Iterator[Row]:
    for running, ns in ledger.together.items():
        yield msgspec.json.encode(running).decode(), None, ns, None
    for group, overlap in ledger.groups.items():
        yield None, group, overlap.comm, overlap.hidden


def _kernels(kernels: KernelSums) -> Iterator[Row]:
    for (kind, name), own in kernels.items():
        yield kind, name, own.count, own.ns, own.gap_ns, own.occupied_ns, own.occupancy


def _work(ledger: RankLedger) -> Iterator[Row]:
    for effort, (count, ns) in ledger.work.efforts.items():
        call = effort.work
        yield effort.op, call.model, call.recompute, call.bytes, call.dtype, effort.again, count, ns


def _stacks(ledger: RankLedger) -> Iterator[Row]:
    for line, counts in ledger.samples.items():
        times = ledger.sampled_ns[line]
        yield from ((line, stack, count, times[stack]) for stack, count in counts.items())
