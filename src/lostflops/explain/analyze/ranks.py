"""Which ranks are late, why, and what does it cost?

Ranks are compared with ranks that do the same work, by their time outside communication: because the others wait, a
slow rank shows in no other measure. Arrivals on the common clock show who waited for whom.

Without a timeline, the times at which hosts enqueued collectives show which rank is last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.align.answers import clock_notes, clock_of
from lostflops.account.align.mesh import Mesh, recognise
from lostflops.account.late.arrivals import by_rank
from lostflops.account.late.charges import charges
from lostflops.account.late.ranks import MOST_RANKS, Judgement, in_steps, judge_ranks
from lostflops.account.late.timed import judge_timed_steps
from lostflops.account.late.words import cost_of, latecomers, long_stage, nobody
from lostflops.account.ledger.by_rank import Progress
from lostflops.account.ledger.lines import LINES, WAIT_LINES
from lostflops.account.ledger.scope import scope
from lostflops.account.pace.timed_steps import TimedSteps
from lostflops.core.results import Field, HeatMap, Pair, Pairs, Result, Section, Table
from lostflops.core.units import pluralise

if TYPE_CHECKING:
    from lostflops.account.ledger.windows import WindowKind
    from lostflops.store.run import Run

MOST_ROWS: Final = 12
_WIDEST: Final = 64
_MOST_CELLS: Final = 2048
_WAITING: Final = [LINES.index(line) for line in WAIT_LINES]

_HAS_PASSES: Final = """
    select exists (select 1 from passes) or exists (select 1 from ranks where device_index is not null)"""
"""Without passes of microbatches and without kernels, the pipeline's bubble cannot be split."""


def ranks(
    run: Run,
    *,
    window: WindowKind | None = None,
    steps: Sequence[int] = (),
    mesh: Mapping[str, int] | None = None,
    limit: int = MOST_ROWS,
    progress: Progress | None = None,
) -> Result:
    asked = scope(run, window, (), steps)
    order = recognise(run, mesh)
    found = judge_ranks(run, asked, order, progress)
    clock = clock_of(run)
    lateness = by_rank(run, asked, clock)
    told = bool(run.rows("select exists (select 1 from arrivals where event is not null)")[0][0])
    stage = long_stage(found.comparison, order.stage, has_passes=bool(run.rows(_HAS_PASSES)[0][0]))
    result = Result(
        name="ranks",
        version=3,
        title="Late ranks",
        verdict=" ".join(filter(None, (_verdict(found, len(asked.ranks)), stage))),
        blocks=(
            *([_stragglers(found, told)] if found.stragglers else []),
            *([_heat_map(order, lateness)] if lateness else []),
            _table(order, found, lateness, limit=limit, told=told),
        ),
        notes=tuple(_notes(run, order, found, clock, len(asked.ranks))),
        more=(
            clock,
            *([] if found.stragglers else [_stragglers(found, told)]),
            *([] if lateness else [_heat_map(order, lateness)]),
            _evenness(found),
            _mesh(order),
        ),
    )
    paced = TimedSteps.of(run)
    if paced is None:
        return result
    timed = judge_timed_steps(run, order, paced.pace).answer(limit)
    return paced.late_ranks(result, timed, not found.comparison.ranks.size)


def _verdict(found: Judgement, ranks_in_all: int) -> str:
    ranks_seen = found.comparison.ranks.size
    if ranks_seen < 2:
        return (
            "Only one rank recorded any time in this window, so there is no other rank to compare it with."
            if ranks_seen
            else "No rank recorded any time."
        )
    # Waits of ranks that were not compared are not charged: the report reads all.
    others = f"The {ranks_seen:,} compared ranks" if ranks_in_all > MOST_RANKS else "Other ranks"
    if found.late:
        return latecomers(found.late, others)
    if found.stragglers:
        return f"No rank is late for certain. Suspected: {latecomers(found.stragglers, others)}{_settled(found)}"
    return nobody(found)


def _settled(found: Judgement) -> str:
    """Say how many more steps would settle the first suspicion; of a window without steps, this is unknown."""
    first = found.stragglers[0]
    more = first.late.more_steps if first.in_steps else None
    return f" {pluralise(more, 'more step')} would settle it." if more is not None else ""


def _stragglers(found: Judgement, told: bool) -> Table:
    """Tabulate stragglers; waits are unknown if no collective was recorded on two ranks."""
    fields = (
        Field("rank"),
        Field("kind"),
        Field("is_late", label="late"),
        Field("ns", "ns", "by", within="late_by"),
        Field("share", "share", "of a step", within="late_by"),
        Field("error_ns", "ns", shown=False, within="late_by"),
        Field("in_steps", label="steps"),
        Field("since", shown=False),
        Field("charged_ns", "ns", "waited for"),
        Field("line", label="cause", within="cause"),
        Field("name", shown=False, within="cause"),
        Field("excess_ns", "ns", "excess", within="cause"),
        Field("excess_ns", "ns", shown=False, within="step"),
        Field("slow_steps", shown=False, within="step"),
        Field("steps", shown=False, within="step"),
        Field("last", shown=False),
        Field("collectives", shown=False),
    )
    rows = tuple(
        (
            one.rank,
            one.kind,
            one.is_late,
            round(one.late.ns),
            one.late.share,
            round(one.late.error) if np.isfinite(one.late.error) else None,
            f"{one.late.late_steps:,} of {one.late.steps:,}",
            one.late.since,
            one.charged if told else None,
            one.line,
            one.cause,
            one.line_excess,
            one.excess,
            one.late.late_steps,
            one.late.steps,
            one.last.times if told else None,
            one.last.of if told else None,
        )
        for one in found.stragglers
    )
    bases = " (waits and excess of all steps)" if in_steps(found.comparison) else ""
    return Table("stragglers", f"Stragglers{bases}", fields, rows)


def _heat_map(order: Mesh, lateness: Mapping[int, float]) -> HeatMap:
    """Show ranks in the order of the mesh, whose fastest dimension is that of rank numbers; large meshes in blocks."""
    known = list(order.ranks)
    block = -(-len(known) // _MOST_CELLS)
    width = _row_width(order) if block == 1 else _WIDEST
    rows = []
    for first in range(0, len(known), width * block):
        members = known[first : first + width * block]
        cells = [members[i : i + block] for i in range(0, len(members), block)]
        values = [[max(0.0, lateness[rank]) for rank in cell if rank in lateness] for cell in cells]
        name = _format_rank_range(members)
        rows.append((name, tuple(max(cell, default=None) for cell in values)))
    legend = "mean lateness after the median arrival in collectives, by rank"
    legend += f" (maximum of {block} ranks each)" if block > 1 else ""
    legend += "; 0 if not late"
    across = "rank within the row" if block == 1 else f"block of {block} ranks within the row"
    return HeatMap("arrivals", _format_arrivals_title(order), tuple(rows), "ns", legend, (), "ranks", across)


def _format_rank_range(members: Sequence[int]) -> str:
    """Format evenly spaced ranks as a range.

    >>> _format_rank_range([3]), _format_rank_range([0, 1, 2]), _format_rank_range([0, 4, 8])
    ('3', '0-2', '0-8/4')
    """
    stride = members[1] - members[0] if len(members) > 1 else 1
    return f"{members[0]}" + (f"-{members[-1]}" if len(members) > 1 else "") + (f"/{stride}" if stride > 1 else "")


def _row_width(order: Mesh) -> int:
    width = 1
    for _, size in order.dimensions[:-1]:
        if width * size > _WIDEST:
            break
        width *= size
    return width if width > 1 else min(_WIDEST, len(order.ranks))


def _format_arrivals_title(order: Mesh) -> str:
    shape = " x ".join(f"{kind} {size}" for kind, size in order.dimensions)
    return f"Arrivals ({shape}, fastest first)" if shape else "Arrivals"


def _table(order: Mesh, found: Judgement, lateness: Mapping[int, float], *, limit: int, told: bool) -> Table:
    comparison = found.comparison
    charged = charges(found.profiles, comparison, [one.rank for one in found.stragglers])
    own, wall, excess = comparison.own, comparison.wall, comparison.excess
    waited = {one.rank: one.lines[:, _WAITING].sum() / max(one.steps.size, 1) for one in found.profiles}
    fields = (
        Field("rank"),
        Field("place", shown=len(order.dimensions) > 1),
        Field("own_ns", "ns", "own"),
        Field("excess", "share", "excess"),
        Field("wait_ns", "ns", "waits"),
        Field("lateness_ns", "ns", "lateness"),
        Field("last", "count", "last in"),
        Field("collectives", "count", shown=False),
        Field("charged_ns", "ns", "waited for"),
    )
    rows = []
    for place in np.lexsort((-excess, -charged)).tolist():
        rank = int(comparison.ranks[place])
        last = found.last.get(rank)
        rows.append(
            (
                rank,
                _place(order, rank),
                round(float(own[place])),
                round(float(excess[place] / wall[place]), 6) + 0.0 if wall[place] else None,
                round(float(waited[rank])) if told else None,
                round(lateness[rank]) if rank in lateness else None,
                *((last.times if last else 0, last.of if last else 0) if told else (None, None)),
                round(float(charged[place])) if told else None,
            )
        )
    bases = ", time per step (waited for: all steps)" if in_steps(comparison) else ""
    title = f"Ranks{bases}, most waited for first"
    return Table("ranks", title, fields, tuple(rows), most_shown=limit)


def _place(order: Mesh, rank: int) -> str:
    place = order.places_of([rank])[0].tolist()
    return ",".join(f"{kind}{at}" for (kind, _), at in zip(order.dimensions, place, strict=True))


def _evenness(found: Judgement) -> Pairs:
    slowest, often, rank = cost_of(found.comparison)
    return Pairs(
        "evenness",
        "",
        (
            Pair("slowest_excess", slowest, "share"),
            Pair("slowest_most_often", rank),
            Pair("slowest_most_often_share", often, "share"),
        ),
    )


def _mesh(order: Mesh) -> Pairs:
    sizes = tuple(Pair(kind, size, "count") for kind, size in order.dimensions)
    return Pairs("mesh", "", (*sizes, Pair("source", order.source)))


def _notes(run: Run, order: Mesh, found: Judgement, clock: Section, ranks_in_all: int) -> Iterator[str]:
    yield from clock_notes(run, clock)
    compared = found.comparison.ranks.size
    if ranks_in_all > MOST_RANKS:
        yield (
            f"Only {compared:,} of {ranks_in_all:,} ranks were compared: those that waited least, and a sample of "
            "ranks that do the same work. `waited for` counts only their waits."
        )
    elif 0 < compared < ranks_in_all:
        yield f"{ranks_in_all - compared:,} of {pluralise(ranks_in_all, 'rank')} recorded no time in this window."
    yield from order.notes
