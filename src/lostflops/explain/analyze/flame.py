"""In which functions and source lines is host time lost?

Every stack sample of a rank's training thread counts for the ledger line of that instant, with the time of that line
since the previous sample. Samples on lines that the host is responsible for show where it was late. A function is named
by the innermost frame of the program's own code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from lostflops.account.facts.source_code import code_of, function_of, place_of
from lostflops.account.ledger.by_rank import Progress
from lostflops.account.ledger.lines import HOST_LINES, LINES
from lostflops.account.ledger.samples import places, read_samples
from lostflops.account.ledger.scope import scope
from lostflops.account.ledger.stack_totals import TOO_FEW, StackTotals, draw_stacks
from lostflops.account.ledger.windows import WindowKind
from lostflops.core.errors import UsageError
from lostflops.core.results import Field, Result, Table
from lostflops.core.units import format_ns, format_share, pluralise

if TYPE_CHECKING:
    from lostflops.store.run import Run

MOST_FUNCTIONS: Final = 12


def flame(
    run: Run,
    *,
    window: WindowKind | None = None,
    ranks: Sequence[int] = (),
    steps: Sequence[int] = (),
    lines: Sequence[str] = HOST_LINES,
    progress: Progress | None = None,
) -> Result:
    if unknown := [line for line in lines if line not in LINES]:
        raise UsageError(f"the ledger has no line {', '.join(unknown)}; it has {', '.join(LINES)}")
    total = StackTotals.of([line for line in LINES if line in lines])
    for one in read_samples(run, scope(run, window, ranks, steps), progress):
        total.add(one)
    return Result(
        name="flame",
        title="Lost host time" if set(lines) <= set(HOST_LINES) else "Host time",
        verdict=_verdict(total),
        blocks=(_lines(total), _functions(total)) if total.ranks else (),
        more=(draw_stacks(total),),
    )


def _verdict(total: StackTotals) -> str:
    if not total.ranks:
        return "The run has no stack samples. lostflops run records them by default."
    found = f"{pluralise(total.samples, 'sample')} from {pluralise(total.ranks, 'rank')}"
    if not total.known_lines:
        return f"Too few stack samples: {found} in {format_ns(total.lines.total())} of host time."
    place, ns = _places(total).most_common(1)[0]
    share = format_share(ns / (total.lines.total() or 1))
    return f"{share} of {format_ns(total.lines.total())} of host time is in {place} ({found})."


def _places(total: StackTotals) -> Counter[str]:
    return sum((places(total.times[line]) for line in total.known_lines), Counter())


def _lines(total: StackTotals) -> Table:
    fields = (
        Field("line"),
        Field("ns", "ns", "time"),
        Field("share", "share"),
        Field("samples", "count"),
        Field("where", label="mostly in"),
    )
    rows = []
    for line, ns in total.lines.most_common():
        if ns:
            place = places(total.times[line]).most_common(1)[0][0] if line in total.known_lines else TOO_FEW
            rows.append((line, ns, ns / total.whole, total.counts[line].total(), place))
    return Table("lines", "By line of the ledger", fields, tuple(rows))


def _functions(total: StackTotals) -> Table:
    fields = (
        Field("function"),
        Field("file", label="in"),
        Field("place", shown=False),
        Field("code", shown=False),
        Field("ns", "ns", "time"),
        Field("share", "share"),
        Field("samples", "count"),
        Field("line", label="mostly on"),
    )
    by_line = {line: places(total.times[line]) for line in total.known_lines}
    seen = sum((places(total.counts[line]) for line in total.known_lines), Counter[str]())
    found = _places(total)
    rows = []
    for frame, ns in found.most_common(MOST_FUNCTIONS):
        line = max(by_line, key=lambda line: by_line[line][frame])
        named = (function_of(frame), PurePosixPath(place_of(frame)).name, place_of(frame), code_of(frame))
        rows.append((*named, ns, ns / (total.lines.total() or 1), seen[frame], line))
    return Table("functions", "By function", fields, tuple(rows), len(found) - len(rows))
