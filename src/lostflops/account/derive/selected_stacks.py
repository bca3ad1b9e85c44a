"""Python stacks that were sampled inside a selection, with the time that each represents there.

The selection is cut out of the ledger of each rank before samples are compared with it. So the stacks of a line and the
time without samples sum to the line inside the selection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.derive.selected_events import (
    RankEdges,
    ask_rows,
    limit_ranks,
    limit_rows,
    list_edges,
    outer_edges,
)
from lostflops.account.ledger.batches import RankBatch
from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.record import Samples, records
from lostflops.account.ledger.samples import Sampled, samples_by_line
from lostflops.account.ledger.stack_totals import StackTotals
from lostflops.account.ledger.strips import whole
from lostflops.store.intervals import Intervals

if TYPE_CHECKING:
    from lostflops.store.run import Run

_RANKS_AT_ONCE: Final = 64
"""Ranks are read together up to this many: their stacks are texts, and need memory."""
_INSIDE: Final = """
    select rank, count(*) filter (where time >= first and time < last)
    from samples join {edges} using (rank) where {chosen} and stack <> '' group by rank"""
_SAMPLES: Final = """
    select rank, time, stack from samples
    where {chosen} and stack <> '' and time >= {first} and time < {last}"""
_STRETCHES: Final = """
    select rank, list_position([{lines}], line) as line, start, stop from stretches where {inside}"""


def select_stacks(run: Run, edges: RankEdges, *, is_stored: bool) -> StackTotals | None:
    """Return the stacks of ranks that have samples; None if they have none inside.

    A line is known from its first sample on: a short selection has few. `is_stored` says whether table `stretches` has
    all time of these ranks.
    """
    if not edges:
        return None
    counts: dict[int, int] = dict(ask_rows(run, _INSIDE.format(edges=list_edges(edges), chosen=limit_ranks(edges))))
    if not any(counts.values()):
        return None
    total, ranks = StackTotals.of(LINES, fewest=1), [rank for rank in edges if rank in counts]
    for place in range(0, len(ranks), _RANKS_AT_ONCE):
        own = {rank: edges[rank] for rank in ranks[place : place + _RANKS_AT_ONCE]}
        samples = _read_samples(run, own)
        for rank, lines in _read_stored(run, own) if is_stored else _cut_recorded(run, own):
            read = Samples(**samples.of(rank))
            total.add(Sampled({line: lines[line].total for line in LINES}, *samples_by_line(read, lines)))
    return total if total.samples else None


def _read_samples(run: Run, edges: RankEdges) -> RankBatch:
    """Return samples of all ranks between the first edge and the last."""
    first, last = outer_edges(edges)
    return RankBatch(run, _SAMPLES.format(chosen=limit_ranks(edges), first=first, last=last), tuple(edges))


def _read_stored(run: Run, edges: RankEdges) -> Iterator[tuple[int, Mapping[str, Intervals]]]:
    """Yield the lines of each rank between its edges, from table `stretches`."""
    names = ", ".join(f"'{line}'" for line in LINES)
    query = _STRETCHES.format(lines=names, inside=limit_rows(edges, "stop"))
    stretches = RankBatch(run, query, tuple(edges))
    for rank, (first, last) in edges.items():
        own = stretches.of(rank)
        start, stop = np.maximum(own["start"], first), np.minimum(own["stop"], last)
        yield (
            rank,
            {
                line: Intervals.of(start[own["line"] == place], stop[own["line"] == place])
                for place, line in enumerate(LINES, 1)
            },
        )


def _cut_recorded(run: Run, edges: RankEdges) -> Iterator[tuple[int, Mapping[str, Intervals]]]:
    """Yield the same from the events, for a run that cannot store its stretches."""
    for record in records(run, tuple(edges)):
        first, last = edges[record.rank]
        yield record.rank, {line: span.clip(first, last) for line, span in whole(record).lines.items()}
