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
from lostflops.account.ledger.samples import FEWEST, LineStacks, Sampled, places, read_samples
from lostflops.account.ledger.scope import scope
from lostflops.account.ledger.windows import WindowKind
from lostflops.core.errors import UsageError
from lostflops.core.results import Field, Result, Stacks, Table
from lostflops.core.units import format_ns, format_share, pluralise

if TYPE_CHECKING:
    from lostflops.store.run import Run

MOST_FUNCTIONS: Final = 12
CANNOT_TELL: Final = "too few samples"


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
    total = _Total([line for line in LINES if line in lines])
    for one in read_samples(run, scope(run, window, ranks, steps), progress):
        total.add(one)
    return Result(
        name="flame",
        title="Lost host time" if set(lines) <= set(HOST_LINES) else "Host time",
        verdict=_verdict(total),
        blocks=(_lines(total), _functions(total)) if total.ranks else (),
        more=(_stacks(total),),
    )


class _Total:
    """The chosen lines of all ranks that have samples."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.ranks = 0
        self.whole = 0
        self.lines: Counter[str] = Counter(dict.fromkeys(lines, 0))
        self.counts: LineStacks = {line: Counter() for line in lines}
        self.times: LineStacks = {line: Counter() for line in lines}

    def add(self, one: Sampled) -> None:
        self.ranks += 1
        self.whole += sum(one.lines.values())
        for line in self.counts:
            self.lines[line] += one.lines[line]
            self.counts[line].update(one.counts.get(line, Counter()))
            self.times[line].update(one.times.get(line, Counter()))

    @property
    def known_lines(self) -> list[str]:
        """Lines with enough samples."""
        return [line for line, counts in self.counts.items() if counts.total() >= FEWEST]


def _verdict(total: _Total) -> str:
    if not total.ranks:
        return "The run has no stack samples. lostflops run records them by default."
    counts = sum(counts.total() for counts in total.counts.values())
    found = f"{pluralise(counts, 'sample')} from {pluralise(total.ranks, 'rank')}"
    if not total.known_lines:
        return f"Too few stack samples: {found} in {format_ns(total.lines.total())} of host time."
    place, ns = _places(total).most_common(1)[0]
    share = format_share(ns / (total.lines.total() or 1))
    return f"{share} of {format_ns(total.lines.total())} of host time is in {place} ({found})."


def _places(total: _Total) -> Counter[str]:
    return sum((places(total.times[line]) for line in total.known_lines), Counter())


def _lines(total: _Total) -> Table:
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
            place = places(total.times[line]).most_common(1)[0][0] if line in total.known_lines else CANNOT_TELL
            rows.append((line, ns, ns / total.whole, total.counts[line].total(), place))
    return Table("lines", "By line of the ledger", fields, tuple(rows))


def _functions(total: _Total) -> Table:
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


def _stacks(total: _Total) -> Stacks:
    """Return every line in full; time with too few samples, or none on its rank, is a stack that says so."""
    items: list[tuple[tuple[str, ...], int, int]] = []
    for line, ns in total.lines.items():
        counts, rest = total.counts[line], ns
        if line in total.known_lines:
            times = total.times[line].most_common()
            items += [((line, *stack.split(";")), counts[stack], own) for stack, own in times]
            rest -= total.times[line].total()
        if rest:
            items.append(((line, CANNOT_TELL), 0 if line in total.known_lines else counts.total(), rest))
    frames = {frame for stack, _, _ in items for frame in stack[1:]}
    kinds = {frame: code_of(frame) for frame in frames - {CANNOT_TELL}} | dict.fromkeys(total.lines, "line")
    return Stacks("stacks", "Stacks", tuple(items), kinds)
