"""Time and throughput of a server's scheduler iterations: prefill, decode and mixed batches apart.

Iterations are the steps that were inferred from a scheduler's marks. Each lasts until the next one begins; the last of
a recording ends with its own last event, so it is only used for a kind that has no other.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

from lostflops.account.facts.job_phases import UNKNOWN_KIND, ServedBatch, parse_mark
from lostflops.account.ledger.record import steps_of
from lostflops.account.ledger.windows import step_window
from lostflops.core.results import Field, Table, Value

if TYPE_CHECKING:
    from lostflops.store.run import Run

_MARKED: Final = "select distinct rank from stats where what = 'steps_from_marks' and rank in ({})"
_MARKS: Final = """
    select rank, steps.step, events.name from steps join events using (rank, lane, start)
    where rank in ({}) and events.kind = 'annotation' order by rank, events.dur"""
_FIELDS: Final = (
    Field("kind"),
    Field("iterations", "count"),
    Field("ns", "ns", "time"),
    Field("shortest_ns", "ns", shown=False),
    Field("longest_ns", "ns", "longest"),
    Field("requests", "rate"),
    Field("tokens", "rate"),
    Field("tokens_per_second", "rate", "tokens/s"),
    Field("is_whole", shown=False),
)


@dataclass(frozen=True, slots=True)
class ServedIteration:
    """One batch on one rank."""

    rank: int
    step: int
    batch: ServedBatch
    ns: int
    is_whole: bool
    """Whether the next iteration ends it, and not the recording."""


def read_iterations(run: Run, ranks: Sequence[int], steps: Sequence[int] = ()) -> list[ServedIteration]:
    """Return the iterations of these ranks in order; none if their steps were not inferred from marks."""
    marked = [rank for (rank,) in run.rows(_MARKED.format(", ".join(map(str, ranks))))]
    found = list(_read(run, sorted(marked))) if marked else []
    return [one for one in found if not steps or one.step in steps]


def _read(run: Run, ranks: list[int]) -> Iterator[ServedIteration]:
    batches: dict[tuple[int, int], ServedBatch] = {}
    for rank, step, name in run.rows(_MARKS.format(", ".join(map(str, ranks)))):
        if batch := parse_mark(name or ""):
            batches[rank, step] = batch  # of two that begin at once, the longer is around the other
    for rank, steps in zip(ranks, steps_of(run, ranks), strict=True):
        window = step_window(steps, steps.on_device)
        edges = list(zip(window.number, window.start.tolist(), window.stop.tolist(), strict=True))
        follows = [*(after[1] for after in edges[1:]), None]
        for (step, start, stop), following in zip(edges, follows, strict=True):
            batch = batches.get((rank, step), ServedBatch(UNKNOWN_KIND))
            yield ServedIteration(rank, step, batch, stop - start, stop == following)


def tabulate_iterations(iterations: Sequence[ServedIteration]) -> Table:
    """Return times and throughput of each kind of iteration.

    They are medians: the first iteration of a recording often contains the start of the profiler.
    """
    kinds: defaultdict[str, list[ServedIteration]] = defaultdict(list)
    for one in iterations:
        kinds[one.batch.kind].append(one)
    rows = tuple(_row(kind, kinds[kind]) for kind in sorted(kinds))
    return Table("iterations", "Iterations of the server, median over iterations and ranks", _FIELDS, rows)


def _row(kind: str, every: list[ServedIteration]) -> tuple[Value, ...]:
    used = [one for one in every if one.is_whole] or every
    times = [one.ns for one in used]
    rates = [one.batch.tokens * 1e9 / one.ns if one.batch.tokens is not None and one.ns else None for one in used]
    return (
        kind,
        max(Counter(one.rank for one in every).values()),
        round(median(times)),
        min(times),
        max(times),
        _compute_median([one.batch.requests for one in used]),
        _compute_median([one.batch.tokens for one in used]),
        _compute_median(rates),
        used[0].is_whole,
    )


def _compute_median(values: Sequence[float | None]) -> float | None:
    """Return the median; None if a value is unknown."""
    known = [value for value in values if value is not None]
    return median(known) if len(known) == len(values) else None


def explain_iterations(iterations: Sequence[ServedIteration]) -> Iterator[str]:
    """Yield what a reader of the table must know."""
    alone = sorted({one.batch.kind for one in iterations} - {one.batch.kind for one in iterations if one.is_whole})
    if alone:
        yield (
            f"The recording ends in the only iteration of kind {' and '.join(alone)}: its time may be too short, "
            "and its tokens per second too high."
        )
