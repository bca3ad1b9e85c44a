"""Totals of a selection: some ranks, and a part of the timeline. Events and stretches are cut exactly at its edges.

The edges are on the common clock. Each rank is cut where its own clock shows them, so a ns of its time is in or out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.align.one_clock import OneClock
from lostflops.account.derive.exact_rows import StepEdges, step_edges
from lostflops.account.derive.selected_events import (
    RankEdges,
    SelectedCollective,
    SelectedKernel,
    ask_rows,
    limit_rows,
    list_edges,
    select_collectives,
    select_kernels,
)
from lostflops.account.derive.selected_memory import SelectedMemory, select_memory
from lostflops.account.derive.selected_stacks import select_stacks
from lostflops.account.derive.timeline import TimelineSpan
from lostflops.account.ledger.from_rows import has_stretches, recorded_ranks
from lostflops.account.ledger.lines import LINES, WAIT_LINES
from lostflops.account.ledger.record import records
from lostflops.account.ledger.scope import scope
from lostflops.account.ledger.stack_totals import StackTotals
from lostflops.account.ledger.stretches import RankStretches, cut_stretches
from lostflops.account.ledger.strips import whole
from lostflops.account.ledger.windows import WindowKind
from lostflops.core.errors import UsageError

if TYPE_CHECKING:
    from lostflops.store.run import Run

Sums = Counter[tuple[str, int | None]]
"""Time by line and late rank, in ns."""

_FARTHEST: Final = 2**63 - 1
_MOST_NAMED: Final = 16
"""SQL for a reader lists no more ranks than this."""
_STRETCHES: Final = """
    select line, coalesce(late_rank, -1), sum(least(stop, last) - greatest(start, first))::bigint
    from stretches join {edges} using (rank) where {inside} and start < last and stop > first
    group by line, late_rank"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionTotals:
    """Time, kernels, collectives, stacks and memory of a selection."""

    ranks: tuple[int, ...]
    """Selected ranks that recorded any time."""
    start: int
    """Start, in ns from the start of the timeline."""
    stop: int
    """End, in ns from the start of the timeline, and not after its end."""
    steps: tuple[int, int] | None = None
    """First and last step, if ranks are cut at their own steps instead."""
    lines: dict[str, int]
    """Recorded time by line of the ledger, in ns, summed over ranks."""
    waits: dict[int | None, int]
    """Time on `comm.wait` and `comm.bubble` by late rank, the longest first; None if the late rank is unknown."""
    kernels: tuple[SelectedKernel, ...]
    """Kernels by name, the longest first: those of all ranks together."""
    collectives: tuple[SelectedCollective, ...]
    """Collectives by operation and group, the longest first."""
    stacks: StackTotals | None = None
    """Python stacks of ranks that have samples; None if none was sampled inside."""
    memory: tuple[SelectedMemory, ...] = ()
    """Memory of ranks that recorded any, the highest peak first."""
    query: str = field(default="", compare=False)
    """SQL that sums `lines`; empty if the run does not store stretches, or the clocks of ranks differ."""

    @property
    def total(self) -> int:
        """Recorded time inside the selection, in ns, summed over ranks."""
        return sum(self.lines.values())


def total_selection(
    run: Run,
    ranks: Sequence[int] = (),
    start: int = 0,
    stop: int | None = None,
    steps: tuple[int, int] | None = None,
) -> SelectionTotals | None:
    """Return the totals of some ranks, or of all, between two times in ns from the start of the timeline.

    A selection from 0, or to the end of the timeline, has all that was recorded there. With `steps`, the first and the
    last one, each rank is cut where it starts and ends them itself, if the ledger of the run is about steps.
    None if the run has no timeline.
    """
    clock = OneClock.of(run)
    span = TimelineSpan.of(run, clock)
    chosen = scope(run, WindowKind.TRACE, ranks).ranks
    if span is None:
        return None
    length = span.stop - span.start
    start, stop = max(start, 0), length if stop is None else min(stop, length)
    if start >= stop:
        raise UsageError(f"the selection is empty: choose a start before its end, from 0 to {length} ns")
    own = tuple(rank for rank in chosen if rank in recorded_ranks(run))
    known = {} if steps is None else step_edges(run)
    steps = steps if known else None
    if steps is None:
        edges = {rank: _edges_of(clock, rank, span, start, stop) for rank in own}
    else:
        edges = _edges_of_steps(known, own, *steps)
    is_stored = has_stretches(run, own)
    sums, on_thread = _sum_stored(run, edges) if is_stored else _sum_computed(run, edges)
    return SelectionTotals(
        ranks=tuple(edges),
        steps=steps,
        start=start,
        stop=stop,
        lines={line: sum(ns for (name, _), ns in sums.items() if name == line) for line in LINES},
        waits=_sum_waits(sums),
        kernels=select_kernels(run, edges, on_thread),
        collectives=select_collectives(run, edges),
        stacks=select_stacks(run, edges, is_stored=is_stored),
        memory=select_memory(run, edges),
        query=_write_query(edges, is_all=len(own) == len(recorded_ranks(run))) if is_stored else "",
    )


def _edges_of_steps(known: StepEdges, ranks: Sequence[int], first: int, last: int) -> dict[int, tuple[int, int]]:
    """Return where ranks that have any of these steps start and end them, on their own clocks."""
    found: dict[int, tuple[int, int]] = {}
    for (rank, step), (start, stop) in known.items():
        if rank in ranks and first <= step <= last:
            begin, end = found.get(rank, (start, stop))
            found[rank] = min(begin, start), max(end, stop)
    if not found:
        raise UsageError(f"no rank accounts for a step from {first} to {last}: choose recorded steps, or times")
    return dict(sorted(found.items()))


def _edges_of(clock: OneClock, rank: int, span: TimelineSpan, start: int, stop: int) -> tuple[int, int]:
    """Return where a rank is cut, on its own clock. Clocks are converted to a ns or so, so the timeline's ends cut
    nothing."""
    first, last = clock.own(rank, np.array([span.start + start, span.start + stop])).tolist()
    return first if start > 0 else -_FARTHEST, last if span.start + stop < span.stop else _FARTHEST


def _write_query(edges: RankEdges, *, is_all: bool) -> str:
    """Return short SQL for the time by line; empty if the edges of ranks differ, or the ranks are too many to list."""
    ranks, cuts = sorted(edges), set(edges.values())
    is_range = len(ranks) > 1 and ranks[-1] - ranks[0] == len(ranks) - 1
    if len(cuts) != 1 or not (is_all or is_range or len(ranks) <= _MOST_NAMED):
        return ""
    [(first, last)] = cuts
    has_start, has_stop = first > -_FARTHEST, last < _FARTHEST
    named = f"between {ranks[0]} and {ranks[-1]}" if is_range else f"in ({', '.join(map(str, ranks))})"
    conditions = [f"rank {named}"] * (not is_all) + [f"stop > {first}"] * has_start + [f"start < {last}"] * has_stop
    where = f" where {' and '.join(conditions)}" if conditions else ""
    begin = f"greatest(start, {first})" if has_start else "start"
    end = f"least(stop, {last})" if has_stop else "stop"
    return f"select line, sum({end} - {begin}) as ns from stretches{where} group by line order by ns desc"


def _sum_stored(run: Run, edges: RankEdges) -> tuple[Sums, tuple[int, ...]]:
    """Return time by line and late rank from table `stretches`, and the ranks without a device."""
    if not edges:
        return Counter(), ()
    rows = ask_rows(run, _STRETCHES.format(edges=list_edges(edges), inside=limit_rows(edges, "stop")))
    threads = [rank for (rank,) in run.rows("select rank from accounts where not on_device order by rank")]
    sums = Counter({(line, _known(late)): ns for line, late, ns in rows})
    return sums, tuple(rank for rank in threads if rank in edges)


def _sum_computed(run: Run, edges: RankEdges) -> tuple[Sums, tuple[int, ...]]:
    """Return the same from the events, for a run that cannot store its stretches."""
    sums, on_thread = Counter[tuple[str, int | None]](), list[int]()
    for record in records(run, tuple(edges)):
        sums.update(_sum_stretches(cut_stretches(record, whole(record)), *edges[record.rank]))
        if not record.on_device:
            on_thread.append(record.rank)
    return sums, tuple(on_thread)


def _sum_stretches(own: RankStretches, first: int, last: int) -> Sums:
    held = slice(np.searchsorted(own.stop, first, side="right"), np.searchsorted(own.start, last))
    ns = np.minimum(own.stop[held], last) - np.maximum(own.start[held], first)
    keys, which = np.unique(own.late[held] * (len(LINES) + 1) + own.line[held], return_inverse=True)
    total = np.zeros(keys.size, np.int64)
    np.add.at(total, which, ns)
    found = Counter[tuple[str, int | None]]()
    for key, sum_ns in zip(keys.tolist(), total.tolist(), strict=True):
        late, line = divmod(key, len(LINES) + 1)
        found[LINES[line - 1], _known(late)] = sum_ns
    return found


def _sum_waits(sums: Sums) -> dict[int | None, int]:
    waits = Counter[int | None]()
    for (line, late), ns in sums.items():
        if line in WAIT_LINES:
            waits[late] += ns
    return dict(sorted(waits.items(), key=lambda item: (-item[1], item[0] is None, item[0])))


def _known(late: int) -> int | None:
    return late if late >= 0 else None
