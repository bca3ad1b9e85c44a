"""Tables of a run's sums: the ledger by module of the model, and its host lines by function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from lostflops.account.facts.job_phases import NO_PHASE
from lostflops.account.facts.source_code import code_of, function_of, place_of
from lostflops.account.ledger.lines import GROUPS, HOST_LINES, LINES, compute_group_shares
from lostflops.account.ledger.modules import NO_MODULE, layer_of
from lostflops.account.ledger.samples import FEWEST, LineStacks, places
from lostflops.core.results import Field, Table, Value
from lostflops.core.units import format_share, pluralise

MOST_SHOWN: Final = 20
MOST_PLACES: Final = 10


def layers(modules: Mapping[str, Counter[str]]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for module, lines in modules.items():
        found.setdefault(layer_of(module), Counter()).update(lines)
    return found


def module_table(name: str, sums: Mapping[str, Counter[str]], whole: int) -> Table:
    """Return a table of all modules; empty if no module was annotated."""
    told = sums if set(sums) - {NO_MODULE} else {}
    return _split_table(name, f"By {name.removesuffix('s')} of the model", told, whole)


def job_phase_table(sums: Mapping[str, Counter[str]], whole: int) -> Table:
    """Return a table of all phases of the job; empty if it marks none."""
    told = sums if set(sums) - {NO_PHASE} else {}
    return _split_table("job_phases", "By phase of the job, all ranks", told, whole)


def _split_table(name: str, title: str, sums: Mapping[str, Counter[str]], whole: int) -> Table:
    """Return a table of all parts, the largest first, so that each line sums to the ledger's."""
    ordered = sorted(sums.items(), key=lambda item: (-item[1].total(), item[0]))
    fields = (
        Field("name", label=name.removesuffix("s").replace("job_", "")),
        Field("ns", "ns", "time"),
        Field("share", "share"),
        *(Field(group, "share") for group in GROUPS),
        *(Field(line, "ns", within="lines", shown=False) for line in LINES),
    )
    rows: tuple[tuple[Value, ...], ...] = tuple(
        (
            key,
            lines.total(),
            lines.total() / (whole or 1),
            *compute_group_shares(lines),
            *(lines[line] for line in LINES),
        )
        for key, lines in ordered
    )
    return Table(name, title, fields, rows, most_shown=MOST_SHOWN)


def where(samples: LineStacks, times: LineStacks) -> Table:
    """Return the largest functions of each host line that has samples; none for a line with too few samples."""
    fields = (
        Field("line"),
        Field("function"),
        Field("place"),
        Field("code"),
        Field("ns", "ns", "time"),
        Field("share", "share"),
        Field("samples", "count"),
        Field("of", "count"),
    )
    rows = []
    for line in HOST_LINES:
        counts, whole = samples.get(line, Counter()).total(), times.get(line, Counter()).total()
        seen = places(samples.get(line, Counter()))
        for frame, ns in places(times[line]).most_common(MOST_PLACES) if counts >= FEWEST else ():
            named = (function_of(frame), place_of(frame), code_of(frame))
            rows.append((line, *named, ns, ns / (whole or 1), seen[frame], counts))
    return Table("where", "Where the host was", fields, tuple(rows))


def sampled_in(samples: LineStacks, times: LineStacks, line: str) -> Iterator[str]:
    """Yield evidence in words: where the host was on a line of its own, if stacks were sampled at all."""
    if line not in HOST_LINES or not samples:
        return
    counts = samples.get(line, Counter()).total()
    if counts < FEWEST:
        yield f"too few samples to show where in the program: {pluralise(counts, 'sample')}"
        return
    whole = times[line].total() or 1
    listed = [f"{frame} {format_share(ns / whole)}" for frame, ns in places(times[line]).most_common(2)]
    yield f"host in {', '.join(listed)} (by {pluralise(counts, 'sample')})"
