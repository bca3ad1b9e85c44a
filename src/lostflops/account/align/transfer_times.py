"""Transfer times by size: one sample for each call of a run, and the line through them.

A transfer begins when the last rank has arrived. No rank leaves a barrier before that, and the last rank does not wait,
so the shortest record of a call with all members is the transfer, and no clock is needed. Anything else is one-way: a
broadcast, reduce, gather, scatter or send, whose sender may leave early. There the transfer is the longest record
without its wait, which must be longer than the clock error; if one member left before another arrived, part of it was
over by then, and it is unknown. A send over gloo is recorded until the program waits for it: its receive counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from lostflops.account.align.calls import BARRIERS
from lostflops.account.facts.alpha_beta import AlphaBeta, NoLineFits, alpha_beta
from lostflops.account.facts.bandwidth import bus_factor
from lostflops.account.ledger.call_sizes import SIZE
from lostflops.account.ledger.record import UNKNOWN_GROUP
from lostflops.core.results import Field, Plot, Series, Table, Value
from lostflops.core.units import format_ns, pluralise

if TYPE_CHECKING:
    from lostflops.store.run import Run

MOST_DRAWN: Final = 12
"""Most pairs of operation and group that are drawn: those that take most time."""
MOST_POINTS: Final = 400
"""Most points of one operation and group; more calls are sampled evenly."""
_ENDS: Final = 24
"""Points of a line, so that it is right on logarithmic axes too."""

# A rank is once in a collective, and a transfer has two ends: to count different ranks takes much more memory.
MEASURED: Final = f"""
    met as (select * from arrivals where event is not null {{within}}),
    seen as (
        select m.meeting, m.is_transfer, m.seen, m.expected, coalesce(m.wait, 0) as wait, m.rank, c.op as called,
               c.group_id, c.group_size, c.dtype, {SIZE} as bytes,
               if(m.is_transfer and c.op = 'send' and c.metadata = 'gloo', null, c.stop - c.start) as dur,
               coalesce(k.uncertainty, 0) as uncertainty
        from met m join collectives c on m.rank = c.rank and m.event = c.event
        left join clocks k on k.rank = c.rank
    ), calls as (
        select meeting, bool_or(is_transfer) as is_pair, if(is_pair, 'send_recv', max(called)) as op,
               coalesce(max(group_id), '{UNKNOWN_GROUP}') as group_id, max(group_size) as members,
               max(dtype) as dtype, max(bytes) as bytes,
               op not in ({", ".join(f"'{op}'" for op in sorted(BARRIERS))}) as is_one_way,
               bool_or(dur <= wait) as is_early, if(is_one_way, max(dur - wait), min(dur)) as ns,
               is_one_way and max(uncertainty) > ns as is_uncertain,
               if(is_pair, if(min(rank) = max(rank), 1, 2), count(*)) as ranks,
               coalesce(max(expected), max(seen)) as expected
        from seen group by meeting
    )"""
"""SQL of the calls of a run with their transfers, in ns; the only definition of a measured transfer."""

_CALLS: Final = f"""
    with {MEASURED}
    select op, group_id, members, bytes, ns from calls
    where op is not null and bytes > 0 and ns > 0 and ranks = expected and ranks > 1
          and not (is_one_way and is_early) and not is_uncertain
    order by op, group_id, bytes, meeting"""


class GroupTransfers:
    """Calls of one operation in one group."""

    def __init__(self, op: str, group: str, size: int | None) -> None:
        self.op, self.group, self._members = op, group, size
        self.points: list[tuple[int, int]] = []

    @property
    def total(self) -> int:
        return sum(ns for _, ns in self.points)

    @property
    def line(self) -> AlphaBeta:
        """Line through the median time of each size; raises `NoLineFits`."""
        sizes: dict[int, list[int]] = {}
        for size, ns in self.points:
            sizes.setdefault(size, []).append(ns)
        return alpha_beta({size: median(times) for size, times in sizes.items()})

    @property
    def why_not(self) -> str | None:
        """Why no line goes through the points; None if one does."""
        try:
            _ = self.line
        except NoLineFits as reason:
            return str(reason)
        return None

    def row(self) -> tuple[Value, ...]:
        sizes = {size for size, _ in self.points}
        told = self.op, self.group, len(self.points), len(sizes), min(sizes), max(sizes)
        try:
            line = self.line
        except NoLineFits as reason:
            return (*told, None, None, None, None, str(reason))
        factor = bus_factor(self.op, self._members)
        bus = None if factor is None else factor / line.beta
        return (*told, round(line.alpha), 1 / line.beta, bus, line.farthest, "")

    def series(self) -> Iterator[Series]:
        name = f"{self.op} {self.group}"
        every = -(-len(self.points) // MOST_POINTS)
        yield Series(f"{name}: measured", "marks", tuple(map(_point, self.points[::every])))
        try:
            line = self.line
        except NoLineFits:
            return
        low, high = min(self.points)[0], max(self.points)[0]
        sizes = [low * (high / low) ** (step / (_ENDS - 1)) for step in range(_ENDS)]
        yield Series(f"{name}: {_formula(line)}", "line", tuple((size, line.time(size)) for size in sizes))


def _point(told: tuple[int, int]) -> tuple[float, float]:
    return float(told[0]), float(told[1])


def _formula(line: AlphaBeta) -> str:
    return f"{format_ns(round(line.alpha))} + size / {1 / line.beta:.3g} GB/s"


def transfers(run: Run, within: str, ranks: Sequence[int] = ()) -> list[GroupTransfers]:
    """Return transfers by operation and group, those that take most time first.

    `within` is a condition on `arrivals`; with `ranks`, only meetings of these ranks count.
    """
    if ranks:
        own = ", ".join(map(str, ranks))
        within += f" and meeting in (select meeting from arrivals where rank in ({own}))"
    found: dict[tuple[Any, ...], GroupTransfers] = {}
    for op, group, members, size, ns in run.rows(_CALLS.format(within=within)):
        found.setdefault((op, group), GroupTransfers(op, group, members)).points.append((size, ns))
    return sorted(found.values(), key=lambda one: (-one.total, one.op, one.group))


def plot(found: Sequence[GroupTransfers]) -> Plot:
    series = tuple(series for one in found[:MOST_DRAWN] for series in one.series())
    axes = Field("bytes", "bytes", "size"), Field("ns", "ns", "transfer time, without waiting")
    of = f" (the {MOST_DRAWN} of {len(found):,} that take the most time)" if len(found) > MOST_DRAWN else ""
    return Plot("transfers", f"Transfers by size{of}", *axes, series)


def has_line(found: Sequence[GroupTransfers]) -> bool:
    return any(one.why_not is None for one in found)


def describe_no_lines(found: Sequence[GroupTransfers]) -> Iterator[str]:
    """Say why no latency and bandwidth is known."""
    reasons = Counter(one.why_not for one in found)
    said = "; ".join(
        f"{reason} (in {pluralise(count, 'group')})" if len(reasons) > 1 else f"{reason}"
        for reason, count in reasons.items()
    )
    yield f"Latency and bandwidth of transfers are unknown: {said}."


def table(found: Sequence[GroupTransfers]) -> Table:
    fields = (
        Field("op"),
        Field("group"),
        Field("calls", "count"),
        Field("sizes", "count", shown=False),
        Field("smallest_bytes", "bytes", shown=False),
        Field("largest_bytes", "bytes", shown=False),
        Field("alpha_ns", "ns", "latency"),
        Field("algbw_gbs", "gbs", "algbw GB/s"),
        Field("busbw_gbs", "gbs", "busbw GB/s"),
        Field("farthest", "share", "off by"),
        Field("why_not", label="why not"),
    )
    title = "Latency and bandwidth of transfers (time = latency + size / algbw)"
    return Table("alpha_beta", title, fields, tuple(one.row() for one in found), most_shown=MOST_DRAWN)
