"""In which functions and source lines is the time of the host lost?

Every stack sample of a rank's training thread stands on the line of the ledger that its instant stands on. Those on
lines that the host is responsible for tell where it was late; a share of the samples of a line is that share of its
time, give or take what so many samples can tell. A function is named by the innermost frame of the program's own code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from lostflops.errors import UsageError
from lostflops.facts.source_code import code_of, function_of, place_of
from lostflops.ledger.accounts import Progress
from lostflops.ledger.lines import HOST_LINES, LINES
from lostflops.ledger.samples import FEWEST, places, sampled
from lostflops.ledger.scope import scope
from lostflops.ledger.windows import WindowKind
from lostflops.results import Field, Result, Stacks, Table
from lostflops.units import counted, format_share

if TYPE_CHECKING:
    from lostflops.store.run import Run

MOST_FUNCTIONS: Final = 12
Samples = Mapping[str, Counter[str]]


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
    asked = scope(run, window, ranks, steps)
    times: Counter[str] = Counter()
    samples: dict[str, Counter[str]] = {line: Counter() for line in LINES if line in lines}
    seen = 0
    for own_times, own_samples in sampled(run, asked, progress):
        seen += 1
        times.update(own_times)
        for line, counts in samples.items():
            counts.update(own_samples.get(line, Counter()))
    whole = sum(times.values())
    return Result(
        name="flame",
        title="Lost time of the host" if set(lines) <= set(HOST_LINES) else "Time of the host",
        verdict=_verdict(samples, seen),
        blocks=(_lines(times, samples, whole), _functions(samples)) if seen else (),
        more=(_stacks(samples),),
    )


def _verdict(samples: Samples, ranks: int) -> str:
    if not ranks:
        return "Cannot tell: the run holds no stack samples. Record it with lostflops run --with samples."
    total = sum(counts.total() for counts in samples.values())
    found = f"{counted(total, 'sample')} of {counted(ranks, 'rank')} {'falls' if total == 1 else 'fall'} on these lines"
    if total < FEWEST:
        return f"Cannot tell: {found}."
    place, count = places(_joined(samples)).most_common(1)[0]
    return f"{found}; most often in {place}: {format_share(count / total)}."


def _joined(samples: Samples) -> Counter[str]:
    return sum(samples.values(), Counter())


def _lines(times: Counter[str], samples: Samples, whole: int) -> Table:
    fields = (
        Field("line"),
        Field("ns", "ns", "time"),
        Field("share", "share"),
        Field("samples", "count"),
        Field("where", label="mostly in"),
    )
    rows = []
    for line, counts in sorted(samples.items(), key=lambda item: -times[item[0]]):
        if times[line]:
            place = places(counts).most_common(1)[0][0] if counts.total() >= FEWEST else "cannot tell"
            rows.append((line, times[line], times[line] / (whole or 1), counts.total(), place))
    return Table("lines", "By line of the ledger", fields, tuple(rows))


def _functions(samples: Samples) -> Table:
    fields = (
        Field("function"),
        Field("place"),
        Field("code", shown=False),
        Field("samples", "count"),
        Field("share", "share"),
        Field("line", label="mostly on"),
    )
    joined = places(_joined(samples))
    by_line = {line: places(counts) for line, counts in samples.items()}
    rows = []
    for frame, count in joined.most_common(MOST_FUNCTIONS):
        line = max(by_line, key=lambda line: by_line[line][frame])
        rows.append((function_of(frame), place_of(frame), code_of(frame), count, count / joined.total(), line))
    return Table("functions", "By function", fields, tuple(rows), max(len(joined) - len(rows), 0))


def _stacks(samples: Samples) -> Stacks:
    items = [
        ((line, *stack.split(";")), count) for line, counts in samples.items() for stack, count in counts.most_common()
    ]
    frames = {frame for stack, _ in items for frame in stack[1:]}
    kinds = {frame: code_of(frame) for frame in frames} | dict.fromkeys(samples, "line")
    return Stacks("stacks", "Stacks", tuple(items), kinds)
