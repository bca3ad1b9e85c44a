"""How long do collectives take on a group of ranks, and which algorithm wins at which size?

Nothing is measured here: the answers are those of `CollectiveTimes`, with their sources and what was extrapolated.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Final

from lostflops.account.facts.bandwidth import bus_factor
from lostflops.core.errors import UnknownCost
from lostflops.core.results import Field, Plot, Result, Series, Table, Value
from lostflops.core.units import format_bytes, format_ns, pluralise
from lostflops.predict.costs.collective_times import CollectiveTimes
from lostflops.predict.costs.times import OPS, CollectiveTime, CommGroup, Op

SIZES: Final = tuple(1 << power for power in (10, 15, 20, 23, 25, 28, 30))
"""1 KiB to 1 GiB, closer together where gradients' buckets are."""
_DRAWN: Final = tuple(1 << power for power in range(10, 31))

_Times = dict[Op, list[tuple[int, CollectiveTime]]]


def collectives(
    times: CollectiveTimes, group: CommGroup, ops: Sequence[Op] = OPS, sizes: Sequence[int] = SIZES
) -> Result:
    found, unknown = _ask(times, group, ops, sizes)
    main = next(iter(found))
    sources = dict.fromkeys(time.source for asked in found.values() for _, time in asked)
    reaches = dict.fromkeys(time.reach for asked in found.values() for _, time in asked if time.reach)
    return Result(
        name="collectives",
        title="Collectives",
        verdict=_verdict(main, group, found[main]),
        blocks=(_table(found, group), _winners(times, group, found), _plot(times, group, main)),
        notes=(
            f"From: {'; '.join(sources)}.",
            *([f"Extrapolated: {'; '.join(reaches)}."] if reaches else []),
            *([f"Unknown: {', '.join(unknown)}."] if unknown else []),
        ),
    )


def _ask(times: CollectiveTimes, group: CommGroup, ops: Sequence[Op], sizes: Sequence[int]) -> tuple[_Times, list[str]]:
    """Return times by op, and the ops whose times are unknown; raise `UnknownCost` if all are."""
    found: _Times = {}
    unknown: list[str] = []
    for op in ops:
        try:
            found[op] = [(size, times.time(op, size, group)) for size in sizes]
        except UnknownCost:
            unknown.append(op)
    if not found:
        times.time(ops[0], sizes[0], group)
    return found, unknown


def _verdict(op: Op, group: CommGroup, asked: Sequence[tuple[int, CollectiveTime]]) -> str:
    size, time = asked[len(asked) // 2]
    between = f"{format_ns(round(time.low))} to {format_ns(round(time.high))}" if time.high < inf else "unknown"
    return (
        f"{op} of {format_bytes(size)} takes {format_ns(round(time.ns))} ({between}) on {group.ranks:,} ranks on "
        f"{pluralise(group.hosts, 'host')} with {time.algorithm}."
    )


def _table(found: _Times, group: CommGroup) -> Table:
    rows: list[tuple[Value, ...]] = []
    for op, asked in found.items():
        factor = bus_factor(op, group.ranks) or 1.0
        for size, time in asked:
            high = round(time.high) if time.high < inf else None
            gbs = size * factor / time.ns if time.ns > 0 else None
            rows.append((op, size, round(time.ns), round(time.low), high, gbs, time.algorithm, time.source, time.reach))
    fields = (
        Field("op"),
        Field("bytes", "bytes", "size"),
        Field("ns", "ns", "time"),
        Field("low_ns", "ns", "from"),
        Field("high_ns", "ns", "to"),
        Field("busbw_gbs", "gbs", "busbw GB/s"),
        Field("algorithm"),
        Field("source", shown=False),
        Field("reach", shown=False),
    )
    return Table("times", "Time by operation and size", fields, tuple(rows))


def _winners(times: CollectiveTimes, group: CommGroup, found: _Times) -> Table:
    rows = tuple((op, size, name) for op in found for size, name in times.crossover(op, group))
    fields = (Field("op"), Field("from_bytes", "bytes", "from"), Field("algorithm"))
    return Table("winners", "Fastest algorithm by size", fields, rows)


def _plot(times: CollectiveTimes, group: CommGroup, op: Op) -> Plot:
    lines: dict[str, list[tuple[float, float]]] = {}
    for size in _DRAWN:
        for choice in times.choices(op, size, group):
            lines.setdefault(choice.algorithm, []).append((size, choice.ns))
    series = tuple(Series(name, "line", tuple(points)) for name, points in lines.items())
    return Plot("plot", f"{op} by algorithm", Field("bytes", "bytes", "size"), Field("ns", "ns", "time"), series)
