"""The timeline of a run: what each rank mostly did in each of many equal parts of the run's time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from lostflops.account.align.lane_events import extent
from lostflops.account.align.one_clock import OneClock
from lostflops.account.ledger.by_rank import Progress
from lostflops.account.ledger.from_rows import accounted_ranks, recorded_ranks
from lostflops.account.ledger.partition import Partition
from lostflops.account.ledger.record import records
from lostflops.account.ledger.strips import bin_lines, edges, whole
from lostflops.store.run import Run
from lostflops.store.tables import TIMELINE

MOST_PARTS: Final = 16_384
MOST_CELLS: Final = 4_096_000
"""The timelines of all ranks together have at most this many parts: a page can hold no more."""


class TimelineSpan(msgspec.Struct, frozen=True):
    """Time that the timeline shows, on the common clock, and the number of its parts."""

    start: int
    stop: int
    parts: int

    @classmethod
    def of(cls, run: Run, clock: OneClock) -> TimelineSpan | None:
        """Return the time of the whole run; None if nothing was recorded."""
        stored = _stored_span(run)
        if stored is not None:
            return stored
        span = extent(run, clock)
        if span is None:
            return None
        parts = max(1, min(MOST_PARTS, MOST_CELLS // len(run.ranks), span.stop - span.start))
        return cls(span.start, span.stop, parts)


def strips(
    run: Run, clock: OneClock, span: TimelineSpan, progress: Progress | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yield what each rank that recorded any time mostly did in each part: a place in LINES from 1, or 0."""
    if _stored_span(run) == span:
        yield from run.rows("select rank, lines from timeline order by rank")
        return
    for done, record in enumerate(records(run, run.ranks)):
        if progress is not None:
            progress(done, len(run.ranks))
        yield record.rank, strip_of(record.rank, whole(record), clock, span)


def strip_of(rank: int, recorded: Partition, clock: OneClock, span: TimelineSpan) -> bytes:
    """Return what a rank mostly did in each part, from the partition of all that it recorded."""
    times = clock.own(rank, edges(span.start, span.stop, span.parts))
    return bin_lines(recorded.lines, times).tobytes()


def _stored_span(run: Run) -> TimelineSpan | None:
    """Return the span of the timeline that the run stores; None if ranks are missing in it."""
    if run.steps or not run.manifest.files.get(TIMELINE.name):
        return None
    recorded = recorded_ranks(run)
    drawn = run.rows("select start, stop, parts, list(rank) from timeline group by all")
    if len(drawn) != 1 or not recorded <= accounted_ranks(run):
        return None
    start, stop, parts, ranks = drawn[0]
    return TimelineSpan(start, stop, parts) if set(ranks) == recorded else None
