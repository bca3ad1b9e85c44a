"""Ledgers of the ranks of a run: read from its derived tables, else computed from its events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from lostflops.account.ledger.accounts import LEDGER, LEDGER_WITH_KERNELS, RankLedger
from lostflops.account.ledger.by_rank import Progress, by_rank
from lostflops.account.ledger.from_rows import has_accounts, stored_kernels, stored_ledgers
from lostflops.account.ledger.kernel_sums import KernelSums, add_kernels
from lostflops.account.ledger.kernel_totals import KERNELS, KernelTotals
from lostflops.account.ledger.profile import PROFILE, StepProfile
from lostflops.account.ledger.scope import Scope
from lostflops.account.ledger.stored_total import stored_total
from lostflops.account.ledger.total import RunLedger

if TYPE_CHECKING:
    from lostflops.store.run import Run

_MOST_KEPT: Final = 2000
"""Most ranks whose ledgers are kept while a run is open."""


@dataclass(frozen=True, slots=True)
class _AllLedgers:
    """Ledgers of all ranks of a run, in order, and how often each kernel ran on all of them."""

    ledgers: dict[int, RankLedger]
    kernels: KernelSums


def ledgers(run: Run, asked: Scope, progress: Progress | None = None) -> Iterator[RankLedger]:
    """Yield the ledger of each rank that was asked for; `progress` gets the number done and the number of all."""
    if (whole := _keep_all(run, asked, progress)) is not None:
        yield from (whole.ledgers[rank] for rank in asked.ranks if rank in whole.ledgers)
    elif has_accounts(run, asked):
        yield from stored_ledgers(run, asked.ranks)
    else:
        yield from by_rank(LEDGER, run, asked, progress)


def total_of(run: Run, asked: Scope, progress: Progress | None = None) -> RunLedger:
    """Return the sum of the ledgers of the ranks that were asked for."""
    if not _is_kept(run, asked) and has_accounts(run, asked):
        return stored_total(run, asked.ranks)
    return RunLedger.of(ledgers(run, asked, progress))


def profiles_of(run: Run, asked: Scope, progress: Progress | None = None) -> Iterator[StepProfile]:
    """Yield the profiles that ranks are compared by; computing them is less work than computing ledgers."""
    if _is_kept(run, asked) or has_accounts(run, asked):
        yield from (ledger.profile for ledger in ledgers(run, asked, progress))
    else:
        yield from by_rank(PROFILE, run, asked, progress)


def waited_for(run: Run, asked: Scope, progress: Progress | None = None) -> dict[int, int]:
    """Return the ns that other ranks waited for each late rank, exposed waits alone."""
    if has_accounts(run, asked):
        told = ", ".join(map(str, asked.ranks))
        return dict(run.rows(f"select late_rank, sum(ns)::bigint from waits where rank in ({told}) group by all"))
    found: dict[int, int] = {}
    for profile in profiles_of(run, asked, progress):
        for wait in profile.waited:
            found[wait.late] = found.get(wait.late, 0) + wait.ns
    return found


def kernel_totals(run: Run, asked: Scope, progress: Progress | None = None) -> KernelTotals:
    """Return the kernels of all ranks that were asked for, with their work and time."""
    whole = _keep_all(run, asked, progress)
    if whole is not None and asked.ranks == run.ranks:
        total = KernelTotals(whole.kernels)
        for ledger in whole.ledgers.values():
            total.add(ledger.work, ledger.window.wall, ledger.lines)
        return total
    total = KernelTotals()
    if has_accounts(run, asked):
        for ledger, sums in zip(stored_ledgers(run, asked.ranks), stored_kernels(run, asked.ranks), strict=True):
            add_kernels(total.sums, sums)
            total.add(ledger.work, ledger.window.wall, ledger.lines)
        return total
    for found in by_rank(KERNELS, run, asked, progress):
        add_kernels(total.sums, found.sums)
        total.add(found.work, found.wall, found.lines)
    return total


def _key(asked: Scope) -> tuple[str, Scope]:
    """Return the key under which the run keeps the ledgers of all ranks."""
    return "ledgers", replace(asked, ranks=())


def _is_kept(run: Run, asked: Scope) -> bool:
    return run.is_kept(_key(asked))


def _keep_all(run: Run, asked: Scope, progress: Progress | None) -> _AllLedgers | None:
    """Return ledgers of all ranks, if all were asked for now or earlier; None if there are too many."""
    is_whole = asked.ranks == run.ranks and len(run.ranks) <= _MOST_KEPT
    if not is_whole and not _is_kept(run, asked):
        return None
    return run.keep(_key(asked), lambda: _collect_all(run, replace(asked, ranks=run.ranks), progress))


def _collect_all(run: Run, asked: Scope, progress: Progress | None) -> _AllLedgers:
    made, sums = dict[int, RankLedger](), KernelSums()
    found: Iterator[tuple[RankLedger, KernelSums]]
    if has_accounts(run, asked):
        found = zip(stored_ledgers(run, asked.ranks), stored_kernels(run, asked.ranks), strict=True)
    else:
        found = by_rank(LEDGER_WITH_KERNELS, run, asked, progress)
    for ledger, own in found:
        made[ledger.rank] = ledger
        add_kernels(sums, own)
    return _AllLedgers(made, sums)
