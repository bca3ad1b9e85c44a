"""What did each rank do in the median step of A and in that of B? Both steps begin at the same place of one time axis.

The median is that of the profiled steps of a run. A rank's row shows its ledger in the step, and nothing outside of it,
so the longer step is the longer row. Ranks that others wait for most come first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from lostflops.account.align.lane_events import Extent, lane_events
from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.record import Record, records
from lostflops.account.ledger.strips import bin_lines, edges, whole
from lostflops.core.pictures import Events, Strips
from lostflops.core.results import Pair, Pairs, Result
from lostflops.core.units import format_ns, pluralise
from lostflops.explain.compare.joined_events import Places, join_events
from lostflops.explain.compare.median_step import MedianStep

if TYPE_CHECKING:
    from lostflops.store.run import Run

MOST_RANKS: Final = 16
"""Most ranks of a run that are shown."""
MOST_PARTS: Final = 4096
MOST_EVENTS: Final = 60_000
"""Most events of a run that are shown."""
ROOM: Final = 1_000_000
"""Bytes for the events of a run and their names, before they are deflated."""
_NAME, _TITLE = "aligned_steps", "Median steps of A and B"


def aligned_steps(before: Run, after: Run) -> Result:
    """Return the median steps of two runs as strips over one time axis."""
    found = MedianStep.of(before), MedianStep.of(after)
    if found[0] is None or found[1] is None:
        side = "A" if found[0] is None else "B"
        return Result(_NAME, _TITLE, f"Run {side} has no profiled step to show: record one with lostflops run.")
    steps = {"A": found[0], "B": found[1]}
    ranks = choose_ranks(found[0], found[1])
    if not ranks:
        return Result(_NAME, _TITLE, "The runs have no rank in common, so no rank can be compared.")
    return Result(
        name=_NAME,
        title=_TITLE,
        verdict=" ".join(_sentences(steps)),
        blocks=(_draw_strips(steps, ranks), _describe_steps(steps, ranks)),
        notes=tuple(_notes(steps, ranks)),
    )


def choose_ranks(before: MedianStep, after: MedianStep) -> list[int]:
    """Return the ranks that both steps have, those that others wait for most first."""
    waits = before.caused_waits(), after.caused_waits()
    common = before.ranks.keys() & after.ranks.keys()
    return sorted(common, key=lambda rank: (-sum(side.get(rank, 0) for side in waits), rank))[:MOST_RANKS]


def _draw_strips(steps: Mapping[str, MedianStep], ranks: Sequence[int]) -> Strips:
    span = max(step.length(rank) for step in steps.values() for rank in ranks)
    parts = min(MOST_PARTS, span)
    codes = {
        (side, record.rank): _strip(record, step, span, parts)
        for side, step in steps.items()
        for record in records(step.run, ranks)
    }
    rows = tuple((f"{side} rank {rank}", codes[side, rank]) for rank in ranks for side in steps)
    names = [name for name, _ in rows]
    return Strips("rows", "", 0, span, parts, LINES, rows, events=_read_events(steps, ranks, names))


def _strip(record: Record, step: MedianStep, span: int, parts: int) -> bytes:
    """Return what the rank mostly did in each part of the step; 0 outside of it."""
    times = edges(origin := step.origin(record.rank), origin + span, parts)
    codes = bin_lines(whole(record).lines, step.clock.own(record.rank, times))
    middle, own = (times[:-1] + times[1:]) // 2, step.ranks[record.rank]
    codes[(middle < own.start) | (middle >= own.stop)] = 0
    return codes.tobytes()


def _read_events(steps: Mapping[str, MedianStep], ranks: Sequence[int], names: Sequence[str]) -> Events | None:
    """Return the events below the rows; None without a common clock, because each row then has its own origin."""
    if not all(step.is_on_one_clock for step in steps.values()):
        return None
    sides: list[tuple[Events, Places]] = []
    for side, step in steps.items():
        origin = step.origin(ranks[0])
        asked = Extent(origin, max(step.ranks[rank].stop for rank in ranks))
        found = lane_events(step.run, step.clock, ranks, asked, origin=origin, most=MOST_EVENTS, room=ROOM)
        sides.append((found, {step.run.ranks.index(rank): names.index(f"{side} rank {rank}") for rank in ranks}))
    return join_events(names, sides)


def _describe_steps(steps: Mapping[str, MedianStep], ranks: Sequence[int]) -> Pairs:
    keys = {"A": "before", "B": "after"}
    items = [
        pair
        for side, step in steps.items()
        for pair in (
            Pair(f"{keys[side]}_step", step.number, label=f"step of {side}"),
            Pair(f"{keys[side]}_ns", round(step.ns), "ns", f"{side}, mean of ranks"),
            Pair(f"{keys[side]}_steps", step.steps, "count", f"profiled steps of {side}"),
        )
    ]
    return Pairs("medians", "", (*items, Pair("ranks", tuple(ranks), label="ranks, most waited for first")))


def _sentences(steps: Mapping[str, MedianStep]) -> Iterator[str]:
    (one, before), (other, after) = steps.items()
    yield (
        f"The median profiled step takes {format_ns(round(before.ns))} in {one} (step {before.number}) and "
        f"{format_ns(round(after.ns))} in {other} (step {after.number})."
    )
    yield "Both begin at 0; a row ends with its step."


def _notes(steps: Mapping[str, MedianStep], ranks: Sequence[int]) -> Iterator[str]:
    of_each = [step.ranks.keys() for step in steps.values()]
    common = len(of_each[0] & of_each[1])
    if len(ranks) < common:
        yield f"Shown are {len(ranks)} of {pluralise(common, 'rank')}: those that others wait for most in these steps."
    if alone := len(of_each[0] ^ of_each[1]):
        yield f"{pluralise(alone, 'rank')} that only one run has: not shown."
    for side, step in steps.items():
        if not step.is_on_one_clock:
            yield f"Ranks of {side} have no common clock: each row begins where its rank began the step."
