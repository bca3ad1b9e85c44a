"""What was communicated, how long did it take, and how much of it did compute hide?

The time of a collective on a rank includes its wait for the others. The transfer starts when the last recorded rank has
arrived, and bandwidths are computed from transfers only. algbw is size / time, with the size of the gathered tensor for
all-gather and of the input for reduce-scatter; busbw scales it to the bytes that cross a link. If logs of NCCL were
ingested, its communicators, transports and choices are compared with the machine's links and with NCCL's own model.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any, Final

from lostflops.account.align import transfer_times
from lostflops.account.align.answers import clock_notes, clock_of
from lostflops.account.align.communicators import communicator_shapes, transport_faults
from lostflops.account.align.expert_capacity import capacity_notes
from lostflops.account.align.transfer_times import transfers
from lostflops.account.facts.bandwidth import bus_factor
from lostflops.account.facts.devices import find_device
from lostflops.account.facts.mesh_names import kinds_of
from lostflops.account.late.arrivals import within
from lostflops.account.ledger.accounts import Overlap, RankLedger
from lostflops.account.ledger.answers import ledgers
from lostflops.account.ledger.by_rank import Progress
from lostflops.account.ledger.call_sizes import SIZE
from lostflops.account.ledger.lines import WAIT_LINES
from lostflops.account.ledger.record import UNKNOWN_GROUP
from lostflops.account.ledger.scope import scope
from lostflops.account.pace import comm_hooks, network
from lostflops.core.results import Field, Result, Table
from lostflops.core.units import format_ns, format_share, pluralise
from lostflops.predict.costs.nccl_choices import ComparedChoice, compare_choices, topology_of

if TYPE_CHECKING:
    from lostflops.account.ledger.windows import WindowKind
    from lostflops.predict.costs.nccl import Way
    from lostflops.predict.costs.topology import NetworkTopology
    from lostflops.store.run import Run


MOST_ROWS: Final = 20
GUESSED: Final = (
    "Hosts were not recorded. All ranks have different device numbers, so we assume one host: `of link` is relative to "
    "the links inside it."
)
_ONLY_LOGGED: Final = "No communication was traced in this window; NCCL's logs show how its ranks are connected."
NO_TRANSFERS: Final = "Latency and bandwidth are unknown: no call of known size was recorded on all of its ranks."

_QUERY: Final = """
    with windows(rank, start, stop) as (values {windows}),
    seen as (
        select coalesce(op, 'unknown') as op, coalesce(group_id, '{unknown}') as group_id, group_size, dtype,
               {size} as bytes,
               c.stop - c.start as dur, a.wait, c.stop - c.start - coalesce(a.wait, 0) as transfer,
               a.seen < coalesce(a.expected, a.seen) as is_partial
        from collectives c join windows w on c.rank = w.rank and c.start >= w.start and c.start < w.stop
        left join arrivals a on c.rank = a.rank and c.event = a.event
    )
    select op, group_id, group_size, dtype, avg(bytes)::bigint, count(*), sum(dur)::bigint, sum(wait)::bigint,
           sum(transfer)::bigint, median(transfer)::bigint, min(transfer), count(wait),
           count(*) filter (is_partial), count(distinct bytes), max(bytes / nullif(transfer, 0))
    from seen {where} group by op, group_id, group_size, dtype, {size_class}
    order by sum(dur) desc, op, group_id"""
_BY_FOUR: Final = "floor(log2(greatest(bytes, 1)) / 2 + 0.25)"
"""Class of sizes that differ by less than a factor of four; powers of two are never at an edge."""
_MOST_SIZES: Final = 8
"""Calls of an operation in a group that have more sizes, as exchanges of tokens between experts, are shown by class."""
_VARIED: Final = f"""where (op, group_id) in (
    select op, group_id from seen group by op, group_id, group_size, dtype
    having count(distinct coalesce(bytes, -1)) > {_MOST_SIZES})"""

_GROUPS: Final = """
    with members as (
        select distinct group_id, group_size, rank from collectives where group_id is not null and group_size > 1
    ), hosts as (
        select count(host) = 0 and count(distinct device_index) = count(device_index) as is_one from ranks
    )
    select group_id, any_value(device), count(host) = count(*) as is_named
    from members join ranks using (rank) group by group_id, group_size
    having count(*) = group_size and count(distinct device) = 1 and count(device) = count(*)
       and if(count(host) = count(*), count(distinct host) = 1,
              (select is_one from hosts) and count(device_index) = count(*))"""


def comm(
    run: Run,
    *,
    window: WindowKind | None = None,
    ranks: Sequence[int] = (),
    steps: Sequence[int] = (),
    limit: int = MOST_ROWS,
    topology: NetworkTopology | None = None,
    progress: Progress | None = None,
) -> Result:
    asked = scope(run, window, ranks, steps)
    groups: dict[str, list[Overlap]] = defaultdict(list)
    total, wall, waited, spans = Overlap(0, 0, 0), 0, 0, []
    for ledger in ledgers(run, asked, progress):
        for name, own in ledger.groups.items():
            groups[name].append(own)
        total += ledger.overlap
        wall += ledger.window.wall
        waited += sum(ledger.lines[line] for line in WAIT_LINES)
        spans += _spans(ledger)
    rows = _read_calls(run, spans) if spans else []
    clock = clock_of(run)
    links, guessed = link_rates(run)
    tables = _groups(groups, _kinds(run)), _collectives(rows, links, limit)
    moved = transfers(run, within(asked), ranks)
    pictures = transfer_times.plot(moved), transfer_times.table(moved)
    drawn = pictures if moved and transfer_times.has_line(moved) else pictures[:1] if moved else ()
    hooks, traffic = comm_hooks.table(run, asked.ranks), network.table(run, asked.ranks)
    choices = compare_choices(run, topology or topology_of(run))
    logged = (
        _logged_communicators(run),
        _logged_faults(run, topology or topology_of(run)),
        _logged_choices(choices, limit),
    )
    shown = (
        *(tables if rows or total.comm else ()),
        *drawn,
        *(table for table in (hooks, traffic, *logged) if table.rows),
    )
    said = _verdict(total, wall, waited, rows) if rows or total.comm or not logged[0].rows else _ONLY_LOGGED
    return Result(
        name="comm",
        title="Communication",
        verdict=" ".join(filter(None, (said, comm_hooks.describe(hooks)))),
        blocks=shown,
        more=(clock, *(block for block in (*tables, *pictures, hooks, traffic, *logged) if block not in shown)),
        notes=(
            *_notes(rows),
            *([GUESSED] if guessed and rows else []),
            *([] if moved or not rows else [NO_TRANSFERS]),
            *(transfer_times.describe_no_lines(moved) if len(drawn) == 1 else ()),
            *(capacity_notes(run) if rows else ()),
            *(clock_notes(run, clock) if rows else ()),
            *_choice_notes(choices),
        ),
    )


def _read_calls(run: Run, spans: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return calls by operation, group and size, or by class of sizes if there are many."""

    def read(where: str, size_class: str) -> list[tuple[Any, ...]]:
        windows = ", ".join(spans)
        return run.rows(
            _QUERY.format(windows=windows, unknown=UNKNOWN_GROUP, size=SIZE, where=where, size_class=size_class)
        )

    rows = read("", "bytes")
    sizes = Counter(row[:4] for row in rows)
    varied = {kind[:2] for kind, count in sizes.items() if count > _MOST_SIZES}
    if not varied:
        return rows
    kept = [row for row in rows if row[:2] not in varied]
    classed = read(_VARIED, _BY_FOUR)
    return sorted([*kept, *classed], key=lambda row: (-(row[6] or 0), row[0], row[1]))


def _spans(ledger: RankLedger) -> list[str]:
    inside = ledger.window.inside
    edges = zip(inside.start.tolist(), inside.stop.tolist(), strict=True)
    return [f"({ledger.rank}, {start}, {stop})" for start, stop in edges]


def _notes(rows: Sequence[tuple[Any, ...]]) -> Iterator[str]:
    calls = sum(row[5] for row in rows)
    if unmatched := sum(row[5] - row[11] for row in rows if row[2] != 1):
        yield (
            f"{unmatched:,} of {pluralise(calls, 'call')} could not be matched with other ranks: their transfer "
            "time may include waiting."
        )
    if partial := sum(row[12] for row in rows):
        yield (
            f"{partial:,} of {pluralise(calls, 'call')} lack the record of a member: their transfer time may include "
            "waiting for it."
        )


def _verdict(total: Overlap, wall: int, waited: int, rows: Sequence[tuple[Any, ...]]) -> str:
    if not rows and not total.comm:
        return "No communication ran in this window."
    if not total.comm:
        calls, time = sum(row[5] for row in rows), sum(row[6] for row in rows)
        return (
            f"No communication ran on the device; {pluralise(calls, 'collective')} on the host took {format_ns(time)}."
        )
    share = format_share(total.exposed / wall)
    hidden = format_share(total.hidden / total.comm)
    time = f"{format_ns(total.comm)} over all ranks"
    says = f"Communication takes {time}; compute hides {hidden} of it. The rest is {share} of the time of all ranks"
    return f"{says}, {format_share(waited / total.exposed)} of it waiting for others." if waited else f"{says}."


def _kinds(run: Run) -> dict[str, str]:
    """Return the kinds of parallelism of each group, as its description names them, without those of one rank."""
    rows = run.rows(
        "select group_id, any_value(description), max(size) from groups where description is not null group by 1"
    )
    named = {group: (kinds_of(said), size) for group, said, size in rows}
    largest: Counter[str] = Counter()
    for kinds, size in named.values():
        if len(kinds) == 1:
            (kind,) = kinds
            largest[kind] = max(largest[kind], size or 0)
    alone = {kind for kind, size in largest.items() if size == 1}
    return {group: "+".join(sorted(kinds - alone or kinds)) for group, (kinds, _) in named.items() if kinds}


def _groups(groups: dict[str, list[Overlap]], kinds: Mapping[str, str]) -> Table:
    rows = []
    for name, overlaps in groups.items():
        time, hidden = sum(one.comm for one in overlaps), sum(one.hidden for one in overlaps)
        could = sum(one.most for one in overlaps)
        if time:
            share = hidden / could if could else None
            rows.append((name, kinds.get(name), len(overlaps), time, hidden, time - hidden, share))
    fields = (
        Field("group"),
        Field("kind", shown=any(row[1] for row in rows)),
        Field("ranks", "count"),
        Field("comm_ns", "ns", "time"),
        Field("hidden_ns", "ns", "hidden"),
        Field("exposed_ns", "ns", "exposed"),
        Field("efficiency", "share", "overlap efficiency"),
    )
    ordered = tuple(sorted(rows, key=lambda row: -row[5]))
    return Table("groups", "By process group", fields, ordered, most_shown=MOST_ROWS)


def _collectives(found: Sequence[tuple[Any, ...]], links: Mapping[str, float], limit: int) -> Table:
    rows = []
    for op, group, size, dtype, sent, count, ns, wait, transfer, median, shortest, _, _, sizes, fastest in found:
        overall, moving = _rate(sent, count, ns), _rate(sent, count, transfer)
        factor = bus_factor(op, size)
        bus = [None if rate is None or factor is None else rate * factor for rate in (moving, fastest, overall)]
        times = ns, wait, transfer, median, shortest
        share = None if bus[0] is None or group not in links else bus[0] / links[group]
        rows.append((op, group, size, dtype, sent, sizes, count, *times, moving, *bus[:2], overall, bus[2], share))
    has_classes = any(row[13] > 1 for row in found)
    fields = (
        Field("op"),
        Field("group"),
        Field("group_size", shown=False),
        Field("dtype", shown=False),
        Field("bytes", "bytes", "mean size" if has_classes else "size"),
        Field("sizes", "count", shown=False),
        Field("count", "count"),
        Field("ns", "ns", "time", shown=False),
        Field("wait_ns", "ns", "wait"),
        Field("transfer_ns", "ns", "transfer"),
        Field("median_transfer_ns", "ns", shown=False),
        Field("shortest_transfer_ns", "ns", shown=False),
        Field("algbw_gbs", "gbs", "algbw", shown=False),
        Field("busbw_gbs", "gbs", "busbw GB/s"),
        Field("fastest_busbw_gbs", "gbs", shown=False),
        Field("algbw_with_wait_gbs", "gbs", shown=False),
        Field("busbw_with_wait_gbs", "gbs", "with wait", shown=False),
        Field("link_share", "share", "of link", shown=bool(links)),
    )
    return Table("collectives", "By operation, group, dtype and size", fields, tuple(rows), most_shown=limit)


def _logged_communicators(run: Run) -> Table:
    fields = (
        Field("communicators", "count", "count"),
        Field("size", "count", "ranks"),
        Field("hosts", "count"),
        Field("first_rank", shown=False),
        Field("last_rank", shown=False),
        Field("logged", "count", shown=False),
        Field("channels", "count"),
        Field("rings", "count", shown=False),
        Field("nvls_channels", "count", "NVLS"),
        Field("inside", label="inside a host"),
        Field("across", label="across hosts"),
        Field("network", shown=False),
        Field("version", shown=False),
    )
    rows = tuple(astuple(shape) for shape in communicator_shapes(run))
    return Table("nccl_communicators", "NCCL's communicators, by its logs", fields, rows, most_shown=MOST_ROWS)


def _logged_faults(run: Run, topology: NetworkTopology | None) -> Table:
    is_nvlink = topology is not None and topology.link == "nvlink"
    found = transport_faults(run, is_nvlink=is_nvlink, reduces=topology is not None and topology.nvls)
    fields = Field("what", label="problem"), Field("where"), Field("fix", label="what to do")
    return Table("nccl_faults", "Connections slower than they could be", fields, tuple(astuple(one) for one in found))


def _logged_choices(choices: Sequence[ComparedChoice], limit: int) -> Table:
    fields = (
        Field("op"),
        Field("bytes", "bytes", "size"),
        Field("group_size", "count", "ranks"),
        Field("hosts", "count", shown=False),
        Field("count", "count", "calls", shown=False),
        Field("algorithm", shown=False),
        Field("protocol", shown=False),
        Field("choice", label="NCCL chose"),
        Field("channels", "count"),
        Field("available_channels", "count", shown=False),
        Field("model_algorithm", shown=False),
        Field("model_protocol", shown=False),
        Field("model_choice", label="model"),
        Field("slower", "share", "slower by"),
    )
    rows = tuple(
        (
            *(one.op, one.size, one.ranks, one.hosts, one.calls, one.algorithm, one.protocol),
            *(f"{one.algorithm} {one.protocol}", one.channels, one.available),
            *_names_of(one.expected),
            None if one.slowdown is None else one.slowdown - 1,
        )
        for one in choices
    )
    return Table("nccl_choices", "What NCCL chose, and what its model would choose", fields, rows, most_shown=limit)


def _names_of(way: Way | None) -> tuple[str | None, ...]:
    return (None, None, None) if way is None else (way.algorithm, way.protocol, f"{way.algorithm} {way.protocol}")


def _choice_notes(choices: Sequence[ComparedChoice]) -> Iterator[str]:
    calls = sum(one.calls for one in choices)
    if other := sum(one.calls for one in choices if one.is_other):
        yield (
            f"NCCL chose otherwise than its model in {other:,} of {pluralise(calls, 'call')}: `slower by` compares "
            "the times of both choices, by the model."
        )
    reasons: dict[str, int] = defaultdict(int)
    for one in choices:
        if one.reason:
            reasons[one.reason] += one.calls
    for reason, count in reasons.items():
        yield f"{pluralise(count, 'call')} not compared with the model: {reason}."


def _rate(sent: int | None, count: int, ns: int) -> float | None:
    return sent * count / ns if sent is not None and ns else None


def link_rates(run: Run) -> tuple[dict[str, float], bool]:
    """Return GB/s per direction for groups with all members on one host, and whether hosts were guessed: if all ranks
    have different device numbers, they are assumed to be on one host. Two devices with the same number are on two
    hosts."""
    rates, guessed = {}, False
    for group, name, is_named in run.rows(_GROUPS):
        device = find_device(name)
        if device is not None and device.scaleup_gbs is not None:
            rates[group] = device.scaleup_gbs
            guessed |= not is_named
    return rates, guessed
