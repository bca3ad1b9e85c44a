"""The common clock in answers: its method, reference and uncertainty, in figures and in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lostflops.account.align.clocks import COLLECTIVES, CONTRADICTORY, SAME_HOST, UNTIED
from lostflops.account.facts.clock_error import RESOLUTION
from lostflops.core.results import Field, Pair, Section, Table
from lostflops.core.units import format_ns, format_share, pluralise

if TYPE_CHECKING:
    from lostflops.store.run import Run

_MOST_LISTED: Final = 8
_NONE: Final = "none"
_LOST: Final = {
    UNTIED: "No collective aligns the clock of rank {} with that of rank {}",
    CONTRADICTORY: "Collectives give contradictory offsets between the clocks of rank {} and rank {}",
}


def clock_of(run: Run) -> Section:
    rows = run.rows("select rank, correction, uncertainty, drift, method, spread, reference from clocks order by rank")
    methods = {row[4] for row in rows}
    items = (
        Pair("method", next((method for method in (COLLECTIVES, SAME_HOST) if method in methods), _NONE)),
        Pair("reference", rows[0][6] if rows else None),
    )
    fields = (
        Field("rank"),
        Field("offset_ns", "ns"),
        Field("uncertainty_ns", "ns"),
        Field("drift_ppm"),
        Field("method"),
        Field("spread_ns", "ns"),
    )
    return Section("clock", "Clocks", items, Table("ranks", "", fields, tuple(row[:6] for row in rows)))


def clock_notes(run: Run, clock: Section) -> Iterator[str]:
    """Yield how far arrivals of different ranks can be compared, and what is missing for it."""
    rows = clock.table.rows
    if not rows:
        yield "The run has no common clock, so waits and transfers cannot be separated: ingest its traces again."
        return
    tied = [row for row in rows if row[4] == COLLECTIVES]
    lost = {method: [row[0] for row in rows if row[4] == method] for method in _LOST}
    if tied:
        widest, spread = (max(int(row[i] or 0) for row in tied) for i in (2, 5))
        error = format_ns(round(2 * RESOLUTION * spread))
        shortest = f" Waits shorter than the clock error, up to {error}, count as transfer." if spread else ""
        yield (
            f"The clocks of {pluralise(len(tied), 'rank')} were aligned "
            f"to rank {clock.items[1].value} with collectives, "
            f"to within {format_ns(widest)}.{shortest}"
        )
    elif len(rows) > 1 and not any(lost.values()):
        yield "All ranks share the clock of one host. Waits shorter than the clock error count as transfer."
    for method, ranks in lost.items():
        if ranks:
            listed = ", ".join(map(str, ranks[:_MOST_LISTED])) + (" ..." if len(ranks) > _MOST_LISTED else "")
            yield (
                f"{_LOST[method].format(listed, clock.items[1].value)}: in their groups, the wait of a call is its "
                "time beyond the shortest call."
            )
    ((by_ends, waited),) = run.rows(
        "select coalesce(sum(wait) filter (basis = 'ends'), 0), coalesce(sum(wait), 0) from arrivals"
    )
    if by_ends:
        yield (
            f"{format_share(by_ends / waited)} of the waiting time is measured from the ends of collectives, because "
            "the clocks do not show which rank started first."
        )
    missing, alone = run.rows(
        "select (select count(*) from arrivals where event is null), (select coalesce(sum(unmatched), 0) from clocks)"
    )[0]
    if missing or alone:
        yield (
            f"{pluralise(missing, 'collective')} not recorded on all participating ranks, "
            f"and {alone:,} recorded on one "
            "rank only: their waits are unknown."
        )
