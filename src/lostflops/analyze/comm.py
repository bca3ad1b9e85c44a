"""What was communicated, how long did it take, and how much of it did compute hide?

A collective's time on one rank holds its wait for the others, so bandwidths on all of it are lower bounds; those of
the shortest call, which waited least, are the nearest that a rank on its own can tell. algbw is size / time, with the
size of the gathered tensor for all-gather and of the input for reduce-scatter; busbw scales it to what crosses a link.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from lostflops.ledger.accounts import Overlap, Progress, RankLedger, ledgers
from lostflops.ledger.record import UNKNOWN_GROUP
from lostflops.ledger.scope import scope
from lostflops.results import Field, Result, Table
from lostflops.units import counted, format_ns, format_share

if TYPE_CHECKING:
    from lostflops.ledger.windows import WindowKind
    from lostflops.store.run import Run

MOST_ROWS: Final = 20
_SHARDED: Final = ("all_gather", "reduce_scatter", "all_to_all")

_QUERY: Final = """
    with windows(rank, start, stop) as (values {windows}),
    seen as (
        select coalesce(op, 'unknown') as op, coalesce(group_id, '{unknown}') as group_id, group_size, dtype,
               case when op = 'all_gather' then bytes_out else coalesce(bytes_in, bytes_out) end as bytes,
               c.stop - c.start as dur
        from collectives c join windows w on c.rank = w.rank and c.start >= w.start and c.start < w.stop
    )
    select op, group_id, group_size, dtype, bytes, count(*), sum(dur)::bigint, min(dur), median(dur)::bigint
    from seen group by all order by sum(dur) desc, op, group_id"""


def comm(
    run: Run,
    *,
    window: WindowKind | None = None,
    ranks: Sequence[int] = (),
    steps: Sequence[int] = (),
    limit: int = MOST_ROWS,
    progress: Progress | None = None,
) -> Result:
    asked = scope(run, window, ranks, steps)
    groups: dict[str, list[Overlap]] = defaultdict(list)
    total, wall, spans = Overlap(0, 0, 0), 0, []
    for ledger in ledgers(run, asked, progress):
        for name, own in ledger.groups.items():
            groups[name].append(own)
        total += ledger.overlap
        wall += ledger.window.wall
        spans += _spans(ledger)
    query = _QUERY.format(windows=", ".join(spans), unknown=UNKNOWN_GROUP)
    rows = run.sql(query).fetchall() if spans else []
    tables = _groups(groups), _collectives(rows, limit)
    return Result(
        name="comm",
        title="Communication",
        verdict=_verdict(total, wall, rows),
        blocks=tables if rows or total.comm else (),
        more=() if rows or total.comm else tables,
        notes=("Times include waiting for late ranks; the fastest call waited least.",) if rows else (),
    )


def _spans(ledger: RankLedger) -> list[str]:
    inside = ledger.window.inside
    edges = zip(inside.start.tolist(), inside.stop.tolist(), strict=True)
    return [f"({ledger.rank}, {start}, {stop})" for start, stop in edges]


def _verdict(total: Overlap, wall: int, rows: Sequence[tuple[Any, ...]]) -> str:
    if not rows and not total.comm:
        return "No communication ran in this window."
    if not total.comm:
        calls, time = sum(row[5] for row in rows), sum(row[6] for row in rows)
        return f"No communication ran on the device; {counted(calls, 'collective')} of the host took {format_ns(time)}."
    share = format_share(total.exposed / wall)
    hidden = format_share(total.hidden / total.comm)
    return (
        f"Communication takes {format_ns(total.comm)}; compute hides {hidden} of it, the rest is {share} of all time."
    )


def _groups(groups: dict[str, list[Overlap]]) -> Table:
    rows = []
    for name, overlaps in groups.items():
        time, hidden = sum(one.comm for one in overlaps), sum(one.hidden for one in overlaps)
        could = sum(one.most for one in overlaps)
        if time:
            rows.append((name, len(overlaps), time, hidden, time - hidden, hidden / could if could else None))
    fields = (
        Field("group"),
        Field("ranks", "count"),
        Field("comm_ns", "ns", "time"),
        Field("hidden_ns", "ns", "hidden"),
        Field("exposed_ns", "ns", "exposed"),
        Field("efficiency", "share", "overlap"),
    )
    ordered = tuple(sorted(rows, key=lambda row: -row[4]))
    return Table("groups", "By process group", fields, ordered[:MOST_ROWS], max(len(ordered) - MOST_ROWS, 0))


def bus_factor(op: str, size: int | None) -> float | None:
    """What a byte of algbw costs on a link: NCCL's busbw, with the size of the group.

    >>> bus_factor("all_reduce", 8), bus_factor("all_gather", 4), bus_factor("broadcast", 8), bus_factor("barrier", 8)
    (1.75, 0.75, 1.0, None)
    """
    if op in {"broadcast", "reduce", "send", "recv", "send_recv"}:
        return 1.0
    if not size:
        return None
    if op == "all_reduce":
        return 2 * (size - 1) / size
    return (size - 1) / size if op in _SHARDED else None


def _collectives(
    found: Sequence[tuple[str, str, int | None, str | None, int | None, int, int, int, int]], limit: int
) -> Table:
    rows = []
    for op, group, size, dtype, sent, count, ns, shortest, median in found[:limit]:
        fastest = sent / shortest if sent is not None and shortest else None
        overall = sent * count / ns if sent is not None and ns else None
        factor = bus_factor(op, size)
        bus = [rate * factor if rate is not None and factor is not None else None for rate in (fastest, overall)]
        rows.append((op, group, size, dtype, sent, count, ns, median, shortest, fastest, bus[0], overall, bus[1]))
    fields = (
        Field("op"),
        Field("group"),
        Field("group_size", shown=False),
        Field("dtype", shown=False),
        Field("bytes", "bytes", "size"),
        Field("count", "count"),
        Field("ns", "ns", "time"),
        Field("median_ns", "ns", "median", shown=False),
        Field("shortest_ns", "ns", "fastest", shown=False),
        Field("algbw_gbs", "gbs", "algbw", shown=False),
        Field("busbw_gbs", "gbs", "busbw GB/s"),
        Field("algbw_with_wait_gbs", "gbs", shown=False),
        Field("busbw_with_wait_gbs", "gbs", "with wait"),
    )
    title = "By operation, group, dtype and size"
    return Table("collectives", title, fields, tuple(rows), len(found) - len(rows))
