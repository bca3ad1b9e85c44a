"""What happened in a part of the timeline?

The totals of some ranks between two times, or in some steps of each: the ledger, waits by the rank that was late,
kernels and collectives, and
Python stacks and memory if they were recorded. All of them are cut exactly at the edges, which are on the common clock.
Times count from the start of the timeline; without edges, the answer is about all that was recorded, also outside
steps. A stack represents the time of its line of the ledger inside the selection since the previous sample there.
Memory at the start is what was allocated before.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Final

from lostflops.account.derive.selected_memory import MOST_SUMMED
from lostflops.account.derive.selection import SelectionTotals, total_selection
from lostflops.account.facts.kernel_names import short_apart
from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.stack_totals import draw_stacks
from lostflops.core.results import Field, Line, Lines, Result, Stacks, Table
from lostflops.core.units import format_ns, format_percent, pluralise

if TYPE_CHECKING:
    from lostflops.store.run import Run

MOST_KERNELS: Final = 50
MOST_COLLECTIVES: Final = 50
MOST_MEMORIES: Final = 50
"""Most ranks that screens show; JSON has all."""
TOO_MANY: Final = f"Memory totals are not recorded here. To sum allocations, select at most {MOST_SUMMED} ranks."
_MOST_PARTS: Final = 3
_LEAST_PART: Final = 0.005
"""Share of the time below which a part is not in the verdict."""
_NEARLY: Final = 0.001
"""Largest difference between ranks x time and recorded time that is not worth a word: clocks differ by less."""
_IN_WORDS: Final = {
    "compute": "compute",
    "comm.transfer": "transfer",
    "copy": "copies",
    "idle.data": "waiting for data",
    "idle.sync": "idle after a sync",
    "idle.alloc": "allocating memory",
    "idle.compile": "compiling",
    "idle.host": "launch overhead",
    "idle.python": "Python",
    "idle.dependency": "idle between kernels",
    "idle.bubble": "pipeline bubble",
    "unexplained": "unexplained",
}
"""Lines as a verdict names them; waits are named by the late rank."""


def selection(
    run: Run,
    *,
    ranks: Sequence[int] = (),
    start: int = 0,
    stop: int | None = None,
    steps: tuple[int, int] | None = None,
) -> Result:
    found = total_selection(run, ranks, start, stop, steps)
    if found is None:
        return Result("selection", "Selection", "No rank recorded any events.")
    return Result(
        name="selection",
        title="Selection",
        verdict=_verdict(found),
        blocks=(_ledger(found), _waits(found), _kernels(found), _collectives(found), *_stacks(found), *_memory(found)),
        notes=(TOO_MANY,) if any(own.peak is None for own in found.memory) else (),
        next_command=shlex.join(("lostflops", "sql", run.name, found.query)) if found.query else "",
    )


def _verdict(found: SelectionTotals) -> str:
    length = found.stop - found.start
    if not found.total:
        return f"Nothing was recorded in these {'steps' if found.steps else format_ns(length)}."
    parts = sorted(_parts(found), reverse=True)
    shares = [(ns / found.total, text) for ns, text in parts[:_MOST_PARTS]]
    listed = ", ".join(f"{format_percent(share)} {text}" for share, text in shares if share >= _LEAST_PART)
    return f"{_size(found, length)}: {listed}."


def _size(found: SelectionTotals, length: int) -> str:
    if len(found.ranks) == 1:
        ranks, rank_time = f"rank {found.ranks[0]}", format_ns(found.total)
    else:
        ranks, rank_time = pluralise(len(found.ranks), "rank"), format_ns(found.total).replace(" ", " rank-")
    if found.steps is not None:
        first, last = found.steps
        return f"{f'Step {first}' if first == last else f'Steps {first} to {last}'} on {ranks} = {rank_time}"
    if abs(found.total - length * len(found.ranks)) > _NEARLY * found.total:
        return f"{format_ns(length)} on {ranks}, {rank_time} of it recorded"
    return f"{format_ns(length)} on {ranks}" + (f" = {rank_time}" if len(found.ranks) > 1 else "")


def _parts(found: SelectionTotals) -> Iterator[tuple[int, str]]:
    """Yield time with its name. A late rank is named if most waits are for it."""
    yield from ((found.lines[line], text) for line, text in _IN_WORDS.items() if found.lines[line])
    waited = sum(found.waits.values())
    if not waited:
        return
    late, most = next(iter(found.waits.items()))
    if late is None or 2 * most < waited:
        yield waited, "waiting for other ranks"
        return
    yield most, f"waiting for rank {late}"
    if most < waited:
        yield waited - most, "waiting for others"


def _ledger(found: SelectionTotals) -> Lines:
    whole = found.total or 1
    items = tuple(Line(line, found.lines[line], found.lines[line] / whole) for line in LINES)
    return Lines("ledger", "Time by line", items, found.total)


def _waits(found: SelectionTotals) -> Table:
    fields = Field("late_rank", label="late rank"), Field("ns", "ns", "time"), Field("share", "share")
    rows = tuple((late, ns, ns / found.total) for late, ns in found.waits.items())
    return Table("waits", "Waits by late rank", fields, rows)


def _kernels(found: SelectionTotals) -> Table:
    kept = found.kernels[:MOST_KERNELS]
    fields = (
        Field("short", label="kernel"),
        Field("name", label="full name", shown=False),
        Field("count", "count"),
        Field("ns", "ns", "time"),
        Field("share", "share"),
    )
    total = sum(one.ns for one in found.kernels) or 1
    rows = tuple(
        (cut, one.name, one.count, one.ns, one.ns / total)
        for cut, one in zip(short_apart([one.name for one in kept]) if kept else (), kept, strict=True)
    )
    return Table("kernels", "Kernels", fields, rows, len(found.kernels) - len(kept))


def _collectives(found: SelectionTotals) -> Table:
    kept = found.collectives[:MOST_COLLECTIVES]
    fields = (
        Field("op"),
        Field("group"),
        Field("count", "count"),
        Field("ns", "ns", "time"),
        Field("wait_ns", "ns", "wait"),
    )
    rows = tuple((one.op, one.group, one.count, one.ns, one.wait) for one in kept)
    return Table("collectives", "Collectives", fields, rows, len(found.collectives) - len(kept))


def _stacks(found: SelectionTotals) -> Iterator[Stacks]:
    if found.stacks is not None:
        yield draw_stacks(found.stacks)


def _memory(found: SelectionTotals) -> Iterator[Table]:
    fields = (
        Field("rank"),
        Field("device"),
        Field("start_bytes", "bytes", "at start"),
        Field("peak_bytes", "bytes", "peak"),
        Field("end_bytes", "bytes", "at end"),
        Field("allocated_bytes", "bytes", "allocated"),
        Field("freed_bytes", "bytes", "freed"),
        Field("allocations", "count"),
    )
    if found.memory:
        yield Table("memory", "Memory", fields, tuple(map(astuple, found.memory)), most_shown=MOST_MEMORIES)
