"""Communication calls in all steps: their purpose, and how much of each is exposed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lostflops.account.ledger.samples import places
from lostflops.account.ledger.shares import by_event
from lostflops.core.errors import NotApplicable, UnknownCost
from lostflops.explain.advise.case import Case, once_per_case
from lostflops.predict.graph.tasks import NONE, Flags, TaskGraph, TaskKind
from lostflops.predict.whatif.change import Facts
from lostflops.predict.whatif.graph_edits.manual_reductions import by_hand
from lostflops.predict.whatif.graph_edits.reductions import reductions
from lostflops.store.intervals import Intervals
from lostflops.store.row_groups import group_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from lostflops.explain.advise.claim import Place
    from lostflops.store.run import Run

Rows = npt.NDArray[np.int64]
TRANSFER, WAIT = "comm.transfer", "comm.wait"
_SHOWN = 3
_MOST_SOURCES = 3
_CALLS_AT_ONCE = 10_000
"""Calls that one query lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Communication of a run: a row is a rank's part in a call."""

    graph: TaskGraph
    row: Rows
    rank: Rows
    meeting: Rows
    exposed: Rows
    """Part of the transfer that no compute hid, in ns."""
    took: Rows
    """The whole transfer, in ns."""
    waited: Rows
    """Exposed wait until the last rank came, in ns."""
    in_backward: Flags
    """Meetings that reduce gradients during the backward pass, as those of DDP and FSDP do."""
    by_hand: Flags
    """Meetings in which the program itself reduces gradients after the backward pass."""
    is_ddp: bool
    """Whether DDP wraps the model."""
    is_sharded: bool
    """Whether FSDP wraps the model."""

    @property
    def event(self) -> Rows:
        return self.graph.tasks.event[self.row]

    @property
    def size(self) -> Rows:
        return self.graph.meetings.size[self.meeting]

    @property
    def step(self) -> Rows:
        return self.graph.tasks.step[self.row].astype(np.int64)

    def of(self, meetings: Flags) -> Flags:
        """Return the rows of these meetings."""
        rows: Flags = meetings[self.meeting]
        return rows

    def attribute(self, rows: Flags, line: str = TRANSFER) -> dict[Place, int]:
        """Return the time of these rows on a line, by rank."""
        ns = self.exposed if line == TRANSFER else self.waited
        chosen = np.flatnonzero(rows)
        totals = ((rank, int(ns[chosen[own]].sum())) for rank, own in group_rows(self.rank[chosen]))
        return {(rank, line): total for rank, total in totals if total}

    def share_hidden(self, rows: Flags) -> float:
        """Return the part of these transfers that compute hid."""
        return 1 - int(self.exposed[rows].sum()) / max(int(self.took[rows].sum()), 1)

    def a_step(self, rows: Flags) -> float:
        """Return how many of these calls there are in a step."""
        return int(rows.sum()) / max(len(self.graph.steps), 1)

    def bytes_a_step(self, rows: Flags) -> int:
        return int(self.size[rows].clip(0).sum()) // max(len(self.graph.steps), 1)

    def examples(self, rows: Flags) -> tuple[tuple[int, int], ...]:
        """Return the most exposed of these calls, as rank and event."""
        found = np.flatnonzero(rows & (self.event >= 0))
        found = found[np.argsort(-(self.exposed + self.waited)[found], kind="stable")][:_SHOWN]
        return tuple(zip(self.rank[found].tolist(), self.event[found].tolist(), strict=True))

    def steps(self, rows: Flags) -> tuple[int, ...]:
        return tuple(np.unique(self.step[rows]).tolist())


_SHARDED = """
    select 1 from events
    where starts_with(name, 'FSDP::') or starts_with(name, 'FullyShardedDataParallel.') limit 1"""
_WRAPPED = "select 1 from events where name = 'DistributedDataParallel.forward' limit 1"


@once_per_case
def traffic_of(case: Case) -> Traffic:
    """Return the communication of a run; raise `UnknownCost` if the run cannot be replayed."""
    if case.baseline is None:
        raise UnknownCost(case.why_unpriced)
    return _traffic(case.run, case.baseline.graph, case.baseline.facts)


def _traffic(run: Run, graph: TaskGraph, facts: Facts) -> Traffic:
    tasks, measured = graph.tasks, graph.measured
    row = np.flatnonzero((tasks.kind == TaskKind.COMM) & (tasks.step >= 0) & (measured.start != NONE))
    meeting, rank = tasks.meeting[row].astype(np.int64), graph.rank[row].astype(np.int64)
    ready = np.full(len(graph.meetings), np.iinfo(np.int64).min)
    np.maximum.at(ready, meeting, measured.start[row])
    start, stop = measured.start[row], measured.stop[row]
    begin = np.clip(ready[meeting], start, stop)
    exposed, waited = np.zeros(row.size, np.int64), np.zeros(row.size, np.int64)
    kernels = np.flatnonzero((tasks.kind == TaskKind.KERNEL) & (measured.start != NONE))
    computing = {one: kernels[own] for one, own in group_rows(graph.rank[kernels])}
    for one, own in group_rows(rank):
        computed = computing.get(one, kernels[:0])
        compute = Intervals.of(measured.start[computed], measured.stop[computed])
        moving = Intervals.of(begin[own], stop[own])
        exposed[own] = by_event(begin[own], stop[own], moving - compute)
        waiting = Intervals.of(start[own], begin[own]) - moving - compute
        waited[own] = by_event(start[own], begin[own], waiting)
    is_ddp = any(bucket is not None for *_, bucket in facts.parameters) or bool(run.rows(_WRAPPED))
    return Traffic(
        graph=graph,
        row=row,
        rank=rank,
        meeting=meeting,
        exposed=exposed,
        took=stop - begin,
        waited=waited,
        in_backward=_meetings(graph, lambda: reductions(graph)),
        by_hand=_meetings(graph, lambda: by_hand(graph, facts) & ~np.bool_(is_ddp)),
        is_ddp=is_ddp,
        is_sharded=bool(run.rows(_SHARDED)),
    )


def _meetings(graph: TaskGraph, found: Callable[[], Flags]) -> Flags:
    try:
        return found()
    except NotApplicable:
        return np.zeros(len(graph.meetings), np.bool_)


def sources(run: Run, made: Traffic, rows: Flags) -> tuple[str, ...]:
    """Return the lines of the program that the training thread was in while these calls ran, the most frequent
    first."""
    stacks: Counter[str] = Counter()
    sampled = [rank for (rank,) in run.rows("select distinct rank from samples")]
    chosen = np.flatnonzero(rows & np.isin(made.rank, sampled))
    for first in range(0, chosen.size, _CALLS_AT_ONCE):
        own = chosen[first : first + _CALLS_AT_ONCE]
        calls = ", ".join(map(str, zip(made.rank[own].tolist(), made.event[own].tolist(), strict=True)))
        query = (
            "select stack, count(*) from samples s join collectives c on s.rank = c.rank and s.time >= c.start and "
            f"s.time < c.stop where (c.rank, c.event) in ({calls}) and stack <> '' group by stack"
        )
        stacks.update(dict(run.rows(query)))
    return tuple(place for place, _ in places(stacks).most_common(_MOST_SOURCES))
