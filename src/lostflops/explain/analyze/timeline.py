"""What was every rank doing at each moment, on one clock?

A rank's row shows its ledger, which separates waits from transfers; below it are counters (memory in use, launch
queue, throughput) and the events of its lanes, as many as fit on a page. A page also gets the exact stretches of each
row, or, if they are too many, the ledger of each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lostflops.account.align.answers import clock_notes, clock_of
from lostflops.account.align.lane_events import Extent, lane_events, row_name
from lostflops.account.align.mesh import recognise
from lostflops.account.align.one_clock import OneClock
from lostflops.account.derive.counters import (
    BYTES_A_POINT,
    MOST_COUNTERS,
    MOST_POINTS,
    MOST_RANKS,
    RankCounters,
    counters_within,
    read_counters,
)
from lostflops.account.derive.exact_rows import row_step_edges, row_stretches, step_lines
from lostflops.account.derive.timeline import TimelineSpan, strips
from lostflops.account.ledger.answers import waited_for
from lostflops.account.ledger.by_rank import Progress
from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.record import steps_of
from lostflops.account.ledger.scope import scope
from lostflops.account.ledger.windows import step_window
from lostflops.core.limits import MOST_DRAWN_LANES
from lostflops.core.pictures import Events, Strips
from lostflops.core.results import Result
from lostflops.core.units import format_ns, pluralise

if TYPE_CHECKING:
    from lostflops.store.run import Run

_DIMENSIONS: Final = {"pp": "stage"}
"""Dimensions of the mesh that have another name in plain words."""
MOST_EVENTS: Final = 400_000
ROOM: Final = 5_000_000
"""Bytes for events, their names and counters, before they are deflated."""
_COUNTERS_ROOM: Final = 4
"""Counters take at most one in this many of these bytes."""


def timeline(run: Run, *, room: int = ROOM, most: int = MOST_EVENTS, progress: Progress | None = None) -> Result:
    clock = OneClock.of(run)
    span = TimelineSpan.of(run, clock)
    if span is None:
        return Result("timeline", "Timeline", "No rank recorded any events.")
    found = list(strips(run, clock, span, progress))
    rows = tuple((row_name(rank), strip) for rank, strip in found)
    counted = [read_counters(run, clock, rank) for rank in run.ranks] if len(run.ranks) <= MOST_RANKS else []
    events = _events(run, clock, Extent(span.start, span.stop), counted, room=room, most=most)
    width = format_ns((span.stop - span.start) // span.parts)
    stretches = row_stretches(run, clock, span)
    marks = tuple(sorted(_step_starts(run, clock).items(), key=lambda mark: mark[1]))
    return Result(
        name="timeline",
        title="Timeline",
        verdict=f"{pluralise(len(rows), 'rank')} over {format_ns(span.stop - span.start)}, "
        f"{_clocks(run, clock)}; "
        f"colour = what the rank mostly did in each {width}.",
        blocks=(
            Strips(
                "rows",
                "What each rank was doing",
                span.start,
                span.stop,
                span.parts,
                LINES,
                rows,
                marks,
                late=_late(run, [rank for rank, _ in found], progress),
                cohorts=_cohorts(run, [rank for rank, _ in found]),
                events=events,
                stretches=stretches,
                step_edges=None if stretches is None else row_step_edges(run, clock, span, [step for step, _ in marks]),
                step_lines=step_lines(run, [step for step, _ in marks]) if stretches is None else None,
            ),
        ),
        notes=(*clock_notes(run, clock_of(run)), *_left_out(events), *_early_starts(counted)),
    )


def _step_starts(run: Run, clock: OneClock) -> dict[int, int]:
    """Return the earliest start of each step on any rank that is on the common clock."""
    recorded = run.rows("select distinct rank from steps where rank in (select rank from ranks where events > 0)")
    ranks = sorted(rank for (rank,) in recorded if len(run.ranks) == 1 or clock.ties(rank))
    found: dict[int, int] = {}
    for rank, steps in zip(ranks, steps_of(run, ranks), strict=True) if ranks else ():
        own = step_window(steps, steps.on_device)
        for number, start in zip(own.number, clock.to_common(rank, own.start).tolist(), strict=True):
            found[number] = min(start, found.get(number, start))
    return found


def _late(run: Run, ranks: Sequence[int], progress: Progress | None) -> tuple[int, ...]:
    """Return for each rank the time that the others waited for it."""
    waited = waited_for(run, scope(run, None), progress) if len(ranks) > 1 else {}
    return tuple(waited.get(rank, 0) for rank in ranks) if waited else ()


def _cohorts(run: Run, ranks: Sequence[int]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the ways to group ranks that put some, and not all, together: by host and by dimension of the mesh."""
    if len(ranks) < 2:
        return ()
    hosts = dict(run.rows("select rank, coalesce(host, 'unknown host') from ranks"))
    mesh = recognise(run)
    is_known = bool(mesh.has(ranks).all())
    places = dict(zip(ranks, mesh.places_of(ranks).tolist(), strict=True)) if is_known else {}
    ways = [("host", tuple(hosts[rank] for rank in ranks))]
    for axis, (kind, _) in enumerate(mesh.dimensions if is_known else ()):
        ways.append((_DIMENSIONS.get(kind, kind), tuple(f"{kind} {places[rank][axis]}" for rank in ranks)))
    return tuple((name, names) for name, names in ways if 1 < len(set(names)) < len(ranks))


def _clocks(run: Run, clock: OneClock) -> str:
    untied = [rank for rank in run.ranks if not clock.ties(rank)]
    if len(run.ranks) == 1 or not untied:
        return "on one clock"
    if len(untied) == len(run.ranks):
        return "each rank on its own clock"
    own = "its own clock" if len(untied) == 1 else "their own clocks"
    return f"on one clock except {pluralise(len(untied), 'rank')} on {own}"


def _events(
    run: Run, clock: OneClock, shown: Extent, counted: Sequence[RankCounters], *, room: int, most: int
) -> Events | None:
    """Return the events of all ranks with their counters, which share the room; None if none are asked for."""
    if not most:
        return None
    counters = counters_within(run, counted, shown, origin=shown.start, most=_points(len(run.ranks), room))
    left = room - BYTES_A_POINT * sum(len(one.at) for one in counters)
    events = lane_events(run, clock, run.ranks, shown, origin=shown.start, most=most, room=left)
    return replace(events, counters=counters)


def _points(ranks: int, room: int) -> int:
    """Return how many points a counter may have, so that those of all ranks fit."""
    return min(MOST_POINTS, room // _COUNTERS_ROOM // (BYTES_A_POINT * MOST_COUNTERS * ranks))


def _early_starts(counted: Sequence[RankCounters]) -> tuple[str, ...]:
    """Return how much work seems to start before its launch."""
    early, launched = (sum(getattr(one.queue, name) for one in counted) for name in ("early", "launched"))
    if not early:
        return ()
    started = f"{early:,} of {launched:,} kernels and copies start before their launch"
    return (f"Launch queue: {started}, because the clocks of host and device differ. They count as never queued.",)


def _left_out(events: Events | None) -> tuple[str, ...]:
    if events is None or not events.left_out:
        return ()
    kept = f"Below the rows, only the longest events of each lane are shown ({len(events.start):,})"
    lanes = f" At most {MOST_DRAWN_LANES:,} lanes are shown, those with the most time." if _is_wide(events) else ""
    return (f"{kept}; {events.left_out:,} shorter events are left out. The rows count all events.{lanes}",)


def _is_wide(events: Events) -> bool:
    return len(events.lanes) >= MOST_DRAWN_LANES
