"""Accounts of ranks, read back from the derived tables of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from lostflops.account.facts.flops import CallWork
from lostflops.account.ledger.accounts import Lines, LongestStretch, Overlap, RankLedger
from lostflops.account.ledger.kernel_sums import KernelSum, KernelSums
from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.profile import StepProfile, WaitedFor
from lostflops.account.ledger.samples import LineStacks
from lostflops.account.ledger.windows import LedgerWindow, WindowKind, choose
from lostflops.account.ledger.work import Effort, RankWork
from lostflops.store.derived import account_code
from lostflops.store.tables import ACCOUNTS, KERNELS, LEDGER, OVERLAP, SPANS, STACKS, WAITS, WORK, TableSchema

if TYPE_CHECKING:
    from lostflops.account.ledger.scope import Scope
    from lostflops.store.run import Run

Row = tuple[Any, ...]
RANKS_AT_ONCE: Final = 256
"""Ranks are read together up to this many, so that thousands do not fill the memory."""
_CURRENT: Final = "select rank, scope from accounts where code = '{}'"
_OF_LEDGER: Final = (ACCOUNTS, SPANS, LEDGER, WAITS, OVERLAP, WORK, STACKS)


def accounted_ranks(run: Run) -> frozenset[int]:
    """Return the ranks with an account that the current code made, of what the run is accounted for by now."""
    windows = _windows(run)
    kind = choose(run, run.ranks).value if windows else ""
    return frozenset(rank for rank, scope in windows.items() if scope is None or scope == kind)


def has_accounts(run: Run, asked: Scope) -> bool:
    """Return whether the derived tables answer a question."""
    if asked.steps:
        return False
    windows = _windows(run)
    recorded = _recorded(run, asked.ranks)
    return bool(recorded) and all(windows.get(rank) == asked.kind.value for rank in recorded)


def has_stretches(run: Run, ranks: Sequence[int]) -> bool:
    """Return whether table `stretches` has all recorded time of these ranks."""
    windows = _windows(run)
    return all(windows.get(rank) is not None for rank in _recorded(run, ranks))


def _windows(run: Run) -> dict[int, str | None]:
    """Return what is accounted for on each rank that has an account; None if the account does not fit into tables."""
    if run.steps or not run.manifest.files.get(ACCOUNTS.name):
        return {}
    return run.keep("accounted", lambda: dict(run.rows(_CURRENT.format(account_code()))))


def recorded_ranks(run: Run) -> frozenset[int]:
    """Return the ranks that recorded any time."""
    query = "select rank from ranks where events > 0"
    return run.keep("recorded ranks", lambda: frozenset(rank for (rank,) in run.rows(query)))


def _recorded(run: Run, ranks: Sequence[int]) -> list[int]:
    recorded = recorded_ranks(run)
    return [rank for rank in ranks if rank in recorded]


def stored_ledgers(run: Run, ranks: Sequence[int]) -> Iterator[RankLedger]:
    """Yield the ledger of each of these ranks that recorded any time, in order. All must have accounts."""
    for batch in _batches(_recorded(run, ranks)):
        read = {table.name: _by_rank(run, table, batch) for table in _OF_LEDGER}
        yield from (_ledger(rank, {name: rows.get(rank, []) for name, rows in read.items()}) for rank in batch)


def stored_kernels(run: Run, ranks: Sequence[int]) -> Iterator[KernelSums]:
    """Yield the sums of kernels of the same ranks."""
    for batch in _batches(_recorded(run, ranks)):
        read = _by_rank(run, KERNELS, batch)
        yield from ({(row[0], row[1]): KernelSum(*row[2:]) for row in read.get(rank, [])} for rank in batch)


def _batches(ranks: Sequence[int]) -> Iterator[Sequence[int]]:
    return (ranks[first : first + RANKS_AT_ONCE] for first in range(0, len(ranks), RANKS_AT_ONCE))


def _by_rank(run: Run, table: TableSchema, ranks: Sequence[int]) -> dict[int, list[Row]]:
    """Return the rows of each rank, in the order in which they were written."""
    if not run.manifest.files.get(table.name):
        return {}
    found: dict[int, list[Row]] = {}
    names = ", ".join(table.column_names())
    for rank, *row in run.rows(f"select {names} from {table.name} where rank in ({', '.join(map(str, ranks))})"):
        found.setdefault(rank, []).append(tuple(row))
    return found


def _ledger(rank: int, rows: dict[str, list[Row]]) -> RankLedger:
    [(_, _, kind, on_device, _, compute, comm, hidden, kernels, unlaunched, blocker, *work, notes)] = rows["accounts"]
    window = _window(WindowKind(kind), rows["spans"], msgspec.json.decode(notes, type=tuple[str, ...]))
    read = _Ledger(rows["ledger"])
    counts, times = _stacks(rows["stacks"])
    steps = (
        () if window.kind is WindowKind.TRACE else tuple(read.steps.get(step, _zero_lines()) for step in window.number)
    )
    return RankLedger(
        rank=rank,
        on_device=on_device,
        window=window,
        lines=read.lines,
        parts=read.details,
        steps=steps,
        phases=read.splits["phase"],
        job_phases=read.splits["job_phase"],
        annotations=read.splits["annotation"],
        modules=read.splits["module"],
        samples=counts,
        sampled_ns=times,
        overlap=Overlap(compute, comm, hidden),
        groups={group: Overlap(compute, ns, under) for _, group, ns, under in rows["overlap"] if group is not None},
        together={_running(text): ns for text, _, ns, _ in rows["overlap"] if text is not None},
        longest=read.longest,
        blocker=blocker,
        work=_work(rows["work"], work),
        unlaunched=unlaunched,
        kernels=kernels,
        profile=_profile(rank, window, (read.lines,) if window.kind is WindowKind.TRACE else steps, rows),
    )


def _window(kind: WindowKind, spans: list[Row], notes: tuple[str, ...]) -> LedgerWindow:
    number = () if kind is WindowKind.TRACE else tuple(step for step, *_ in spans)
    start, stop = (np.array([row[place] for row in spans], np.int64) for place in (1, 2))
    return LedgerWindow(kind, number, start, stop, notes)


class _Ledger:
    """Lines of one rank, split in all ways."""

    def __init__(self, rows: list[Row]) -> None:
        self.lines, self.longest = _zero_lines(), dict[str, LongestStretch]()
        self.details: dict[str, dict[str, int]] = {}
        self.steps: dict[int, Lines] = {}
        self.splits: dict[str, dict[str, Lines]] = {"phase": {}, "job_phase": {}, "annotation": {}, "module": {}}
        for split, name, step, line, ns, longest, event, _ in rows:
            if split == "line":
                self.lines[line] = ns
                if longest is not None:
                    self.longest[line] = LongestStretch(longest, event)
            elif split == "detail":
                self.details.setdefault(line, {})[name] = ns
            elif split == "step":
                self.steps.setdefault(step, _zero_lines())[line] = ns
            else:
                self.splits[split].setdefault(name, _zero_lines())[line] = ns


def _zero_lines() -> Lines:
    return dict.fromkeys(LINES, 0)


def _running(text: str) -> tuple[str, ...]:
    return msgspec.json.decode(text, type=tuple[str, ...])


def _work(rows: list[Row], sums: list[int]) -> RankWork:
    launched, matmul, counted, tensor, plain = sums
    return RankWork(
        efforts={
            Effort(op, CallWork(model, recompute, size, dtype), again): (count, ns)
            for op, model, recompute, size, dtype, again, count, ns in rows
        },
        launched_flops=launched,
        matmul_ns=matmul,
        counted_ns=counted,
        tensor_ns=tensor,
        plain_ns=plain,
    )


def _stacks(rows: list[Row]) -> tuple[LineStacks, LineStacks]:
    counts: LineStacks = {}
    times: LineStacks = {}
    for line, stack, count, ns, _ in rows:
        counts.setdefault(line, Counter())[stack] = count
        times.setdefault(line, Counter())[stack] = ns
    return counts, times


def _profile(rank: int, window: LedgerWindow, steps: Sequence[Lines], rows: dict[str, list[Row]]) -> StepProfile:
    is_trace = window.kind is WindowKind.TRACE
    pieces = [row[3] for row in rows["spans"]]
    return StepProfile(
        rank,
        np.array([-1] if is_trace else window.number, np.int64),
        np.array([[lines[line] for line in LINES] for lines in steps], np.int64).reshape(-1, len(LINES)),
        tuple(WaitedFor(*row) for row in rows["waits"]),
        np.array([sum(pieces)] if is_trace else pieces, np.int64),
    )
