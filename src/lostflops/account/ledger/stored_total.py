"""The ledger of a run, summed by queries over its derived tables: the same as adding up the ledgers of its ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lostflops.account.facts.flops import CallWork
from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.total import RankLines, RunLedger
from lostflops.account.ledger.work import Effort, RankWork

if TYPE_CHECKING:
    from lostflops.store.run import Run

_RANKS: Final = """
    select rank, wall, on_device, compute, comm, hidden, kernels, unlaunched, blocker, launched_flops, matmul_ns,
           counted_ns, tensor_ns, plain_ns, notes
    from accounts where {} order by rank"""
_LINES: Final = "select rank, line, ns, longest, event from ledger where split = 'line' and {} order by rank, place"
_SPANS: Final = "select rank, count(step) from spans where {} group by rank"
_STEPS: Final = "select distinct step from spans where step is not null and {}"
# The order is that in which the ranks, added one by one, would name them first.
_SPLITS: Final = """
    select split, name, line, sum(ns)::bigint from ledger
    where split in ('detail', 'phase', 'job_phase', 'annotation', 'module') and {} group by split, name, line
    order by min(rank::bigint * 4294967296 + place)"""
_STACKS: Final = """
    select line, stack, sum(count)::bigint, sum(ns)::bigint from stacks where {} group by line, stack
    order by min(rank::bigint * 4294967296 + place)"""
# Parts of calls are added as fractions, so their order counts: it is that of the rows.
_WORK: Final = "select op, model_flops, recompute_flops, bytes, dtype, again, count, ns from work where {}"


def stored_total(run: Run, ranks: Sequence[int]) -> RunLedger:
    """Return the sum of the ledgers of these ranks, which all have accounts."""
    chosen = f"rank in ({', '.join(map(str, ranks))})" if tuple(ranks) != run.ranks else "true"
    total = RunLedger(steps={step for (step,) in run.rows(_STEPS.format(chosen))})
    lines = _rank_lines(run, chosen, total)
    counted = dict(run.rows(_SPANS.format(chosen)))
    blockers = dict[int, int]()
    for rank, wall, on_device, *sums, notes in run.rows(_RANKS.format(chosen)):
        total.ranks.append(RankLines(rank, wall, lines.get(rank) or dict.fromkeys(LINES, 0), counted.get(rank, 0)))
        blockers[rank] = _add_account(total, sums)
        total.notes.update(msgspec.json.decode(notes, type=list[str]))
        if not on_device:
            total.on_thread.append(rank)
    if "idle.sync" in total.longest:
        rank = total.longest["idle.sync"][1]
        total.blocker = rank, blockers[rank]
    _add_splits(run, chosen, total)
    for line, stack, count, ns in run.rows(_STACKS.format(chosen)):
        total.samples.setdefault(line, Counter())[stack] = count
        total.sampled_ns.setdefault(line, Counter())[stack] = ns
    _add_efforts(run, chosen, total.work)
    return total


def _rank_lines(run: Run, chosen: str, total: RunLedger) -> dict[int, dict[str, int]]:
    """Return the lines of each rank; add them to the total, with the longest stretch of each."""
    found: dict[int, dict[str, int]] = {}
    for rank, line, ns, longest, event in run.rows(_LINES.format(chosen)):
        own = found.get(rank)
        if own is None:
            own = found[rank] = dict.fromkeys(LINES, 0)
        own[line] = ns
        total.lines[line] += ns
        if longest is not None and longest > total.longest.get(line, (0, 0, 0))[0]:
            total.longest[line] = longest, rank, event
    return found


def _add_account(total: RunLedger, sums: list[Any]) -> int:
    """Add the sums of a rank, and return the event that blocked it."""
    compute, comm, hidden, kernels, unlaunched, blocker, *work = sums
    total.compute += compute
    total.comm += comm
    total.hidden += hidden
    total.could_hide += min(compute, comm)
    total.kernels += kernels
    total.unlaunched += unlaunched
    launched, matmul, counted, tensor, plain = work
    total.work.add(
        RankWork(launched_flops=launched, matmul_ns=matmul, counted_ns=counted, tensor_ns=tensor, plain_ns=plain)
    )
    return int(blocker)


def _add_splits(run: Run, chosen: str, total: RunLedger) -> None:
    into = {
        "phase": total.phases,
        "job_phase": total.job_phases,
        "annotation": total.annotations,
        "module": total.modules,
    }
    for split, name, line, ns in run.rows(_SPLITS.format(chosen)):
        if split == "detail":
            total.parts.setdefault(line, Counter())[name] = ns
        else:
            into[split].setdefault(name, Counter(dict.fromkeys(LINES, 0)))[line] = ns


def _add_efforts(run: Run, chosen: str, work: RankWork) -> None:
    sums: dict[tuple[Any, ...], tuple[float, int]] = {}
    for *key, count, ns in run.rows(_WORK.format(chosen)):
        known, spent = sums.get(tuple(key), (0.0, 0))
        sums[tuple(key)] = known + count, spent + ns
    for (op, model, recompute, size, dtype, again), found in sums.items():
        work.efforts[Effort(op, CallWork(model, recompute, size, dtype), again)] = found
