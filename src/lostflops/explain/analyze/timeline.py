"""What was every rank doing at each moment, on one clock?

A rank's row shows its ledger, which separates waits from transfers; below it are the events of its lanes, as many as
fit on a page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lostflops.account.align.answers import clock_notes, clock_of
from lostflops.account.align.lane_events import Extent, extent, lane_events, row_name
from lostflops.account.align.one_clock import OneClock
from lostflops.account.ledger.by_rank import Progress
from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.record import records
from lostflops.account.ledger.strips import bin_lines, edges, whole
from lostflops.account.ledger.windows import WindowKind, window
from lostflops.core.pictures import Events, Strips
from lostflops.core.results import Result
from lostflops.core.units import format_ns, pluralise

if TYPE_CHECKING:
    from lostflops.account.ledger.record import Record
    from lostflops.store.run import Run

MOST_BINS: Final = 16_384
MOST_CELLS: Final = 4_096_000
"""All rows together have at most this many bins: a file can hold no more."""
MOST_EVENTS: Final = 400_000
ROOM: Final = 5_000_000
"""Bytes for events and their names, before they are deflated."""


def timeline(run: Run, *, room: int = ROOM, most: int = MOST_EVENTS, progress: Progress | None = None) -> Result:
    clock = OneClock.of(run)
    span = extent(run, clock)
    if span is None:
        return Result("timeline", "Timeline", "No rank recorded any events.")
    strips = _Strips(clock, span, len(run.ranks))
    for done, record in enumerate(records(run, run.ranks)):
        if progress is not None:
            progress(done, len(run.ranks))
        strips.add(record)
    events = lane_events(run, clock, run.ranks, span, origin=span.start, most=most, room=room)
    return Result(
        name="timeline",
        title="Timeline",
        verdict=f"{pluralise(len(strips.rows), 'rank')} over {format_ns(span.stop - span.start)}, "
        f"{_clocks(run, clock)}; "
        f"colour = what the rank mostly did in each {format_ns(strips.width)}.",
        blocks=(strips.block(events),),
        notes=(*clock_notes(run, clock_of(run)), *_left_out(events)),
    )


class _Strips:
    """Rows of ranks as they are read, and the start of each step on the first rank of the common clock that has it."""

    def __init__(self, clock: OneClock, span: Extent, ranks: int) -> None:
        self._clock, self._span, self._alone = clock, span, ranks == 1
        self.bins = max(1, min(MOST_BINS, MOST_CELLS // ranks, span.stop - span.start))
        self._edges = edges(span.start, span.stop, self.bins)
        self.rows: list[tuple[str, bytes]] = []
        self._steps: dict[int, int] = {}

    @property
    def width(self) -> int:
        return (self._span.stop - self._span.start) // self.bins

    def add(self, record: Record) -> None:
        codes = bin_lines(whole(record).lines, self._clock.own(record.rank, self._edges))
        self.rows.append((row_name(record.rank), codes.tobytes()))
        # By a clock of its own a rank tells nothing of when others begin.
        if record.steps.number.size and (self._alone or self._clock.ties(record.rank)):
            steps = window(record, WindowKind.STEPS)
            for number, start in zip(
                steps.number, self._clock.to_common(record.rank, steps.start).tolist(), strict=True
            ):
                self._steps[number] = min(start, self._steps.get(number, start))

    def block(self, events: Events) -> Strips:
        marks = tuple(sorted(self._steps.items(), key=lambda mark: mark[1]))
        return Strips(
            "rows",
            "What each rank was doing",
            self._span.start,
            self._span.stop,
            self.bins,
            LINES,
            tuple(self.rows),
            marks,
            events=events,
        )


def _clocks(run: Run, clock: OneClock) -> str:
    untied = [rank for rank in run.ranks if not clock.ties(rank)]
    if len(run.ranks) == 1 or not untied:
        return "on one clock"
    if len(untied) == len(run.ranks):
        return "each rank on its own clock"
    own = "its own clock" if len(untied) == 1 else "their own clocks"
    return f"on one clock except {pluralise(len(untied), 'rank')} on {own}"


def _left_out(events: Events) -> tuple[str, ...]:
    if not events.left_out:
        return ()
    kept = f"Below the rows, only the longest events of each lane are shown ({len(events.start):,})"
    return (f"{kept}; {events.left_out:,} shorter events are left out. The rows count all events.",)
