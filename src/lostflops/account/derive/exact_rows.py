"""Exact times of the timeline's rows, as a page holds them: every stretch, or in a large run the sums of steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.align.one_clock import OneClock
from lostflops.account.derive.timeline import TimelineSpan
from lostflops.account.ledger.answers import profiles_of
from lostflops.account.ledger.from_rows import has_accounts, has_stretches, recorded_ranks
from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.record import Codes, Ns, records
from lostflops.account.ledger.scope import scope
from lostflops.account.ledger.stretches import RankStretches, cut_stretches
from lostflops.account.ledger.strips import whole
from lostflops.account.ledger.windows import WindowKind, window
from lostflops.core.pictures import RowStretches
from lostflops.store.row_groups import group_rows

if TYPE_CHECKING:
    from lostflops.store.run import Run

StepEdges = dict[tuple[int, int], tuple[int, int]]
"""Start and stop of steps, by rank and number."""

MOST_STRETCHES: Final = 400_000
"""Most stretches of all ranks together that a page holds."""
MOST_STEP_LINES: Final = 1_000_000
"""Most times of steps that a page holds, by rank and line."""

_LINE: Final = f"list_position({list(LINES)}, line)"
_STRETCHES: Final = f"""
    select rank, start, stop, {_LINE} as line, coalesce(late_rank, -1) as late from stretches order by rank, start"""
_EDGES: Final = "select rank, step, start, stop from spans where step is not null"
_STEPS: Final = f"select rank, step, {_LINE} - 1 as line, ns from ledger where split = 'step'"


def row_stretches(run: Run, clock: OneClock, span: TimelineSpan, most: int = MOST_STRETCHES) -> RowStretches | None:
    """Return the stretches of all ranks that recorded any time, in order; None if there are more than `most`."""
    found, room = dict[int, RankStretches](), most
    if has_stretches(run, run.ranks) and run.rows("select count(*) from stretches")[0][0] > most:
        return None
    for rank, own in _read_stretches(run):
        room -= own.start.size
        if room < 0:
            return None
        found[rank] = own
    none = np.empty(0, np.int64)
    empty = RankStretches(none, none, none, none)
    return _as_columns([(rank, found.get(rank, empty)) for rank in sorted(recorded_ranks(run))], clock, span)


def _read_stretches(run: Run) -> Iterator[tuple[int, RankStretches]]:
    """Yield the stretches of each rank, from the derived table or else from its events."""
    if not has_stretches(run, run.ranks):
        yield from ((record.rank, cut_stretches(record, whole(record))) for record in records(run, run.ranks))
        return
    found = {name: np.asarray(values).astype(np.int64) for name, values in run.columns(_STRETCHES).items()}
    for rank, rows in group_rows(found["rank"]):
        yield rank, RankStretches(*(found[name][rows] for name in ("start", "stop", "line", "late")))


def _as_columns(rows: Sequence[tuple[int, RankStretches]], clock: OneClock, span: TimelineSpan) -> RowStretches:
    terms = [clock.terms(rank) for rank, _ in rows]
    filled = [_fill_gaps(own) for _, own in rows]
    zeros = [span.start - offset for offset, _, _ in terms]
    return RowStretches(
        count=[kind.size for kind, _, _ in filled],
        start=[int(own.start[0]) - zero if own.start.size else 0 for (_, own), zero in zip(rows, zeros, strict=True)],
        rate=[rate for _, rate, _ in terms],
        ahead=[span.start - instant if rate else 0 for _, rate, instant in terms],
        kind=_join(kind for kind, _, _ in filled),
        dur=_join(dur for _, dur, _ in filled),
        late=_join(late for _, _, late in filled),
    )


def _join(columns: Iterator[Ns]) -> list[int]:
    return list(chain.from_iterable(column.tolist() for column in columns))


def _fill_gaps(own: RankStretches) -> tuple[Codes, Ns, Codes]:
    """Return kind, duration and late rank from 1 of each stretch; where nothing was recorded, a stretch has kind 0."""
    after = np.flatnonzero(own.start[1:] > own.stop[:-1]) + 1
    return (
        np.insert(own.line, after, 0),
        np.insert(own.stop - own.start, after, own.start[after] - own.stop[after - 1]),
        np.insert(own.late + 1, after, 0),
    )


def step_edges(run: Run) -> StepEdges:
    """Return start and stop of each rank's steps, on its own clock; none if the ledger is not about steps."""
    asked = scope(run, None)
    if asked.kind is not WindowKind.STEPS:
        return {}
    if has_accounts(run, asked):
        return {(rank, step): (start, stop) for rank, step, start, stop in run.rows(_EDGES)}
    windows = ((record.rank, window(record, WindowKind.STEPS)) for record in records(run, run.ranks))
    return {
        (rank, step): (int(own.start[place]), int(own.stop[place]))
        for rank, own in windows
        for place, step in enumerate(own.number)
    }


def row_step_edges(run: Run, clock: OneClock, span: TimelineSpan, steps: Sequence[int]) -> list[int] | None:
    """Return where each row starts and ends each of these steps, as times of `RowStretches`; twice 0 for a step that it
    does not have. None if the ledger of the run is not about steps."""
    known = step_edges(run)
    if not known:
        return None
    found = []
    for rank in sorted(recorded_ranks(run)):
        zero = span.start - clock.terms(rank)[0]
        for step in steps:
            own = known.get((rank, step))
            found += [0, 0] if own is None else [own[0] - zero, own[1] - zero]
    return found


def step_lines(run: Run, steps: Sequence[int], most: int = MOST_STEP_LINES) -> list[int] | None:
    """Return the ledger of these steps by rank that recorded any time, step and line: one list, in this order.

    None if steps are not what the ledger of the run is about, or if these are more than `most` times.
    """
    asked = scope(run, None)
    places = {rank: place for place, rank in enumerate(sorted(recorded_ranks(run)))}
    if not steps or asked.kind is not WindowKind.STEPS or len(places) * len(steps) * len(LINES) > most:
        return None
    times = np.zeros((len(places), len(steps), len(LINES)), np.int64)
    columns = {step: column for column, step in enumerate(steps)}
    if has_accounts(run, asked):
        for rank, step, line, ns in zip(*(column.tolist() for column in run.columns(_STEPS).values()), strict=True):
            if rank in places and step in columns:
                times[places[rank], columns[step], line] = ns
    else:
        for profile in profiles_of(run, asked):
            for step, lines in zip(profile.steps.tolist(), profile.lines, strict=True):
                if step in columns:
                    times[places[profile.rank], columns[step]] = lines
    found: list[int] = times.ravel().tolist()
    return found
