"""Calibration samples, learned from a run's own collectives.

Each call gives one sample: its transfer without waits. The last member to arrive does not wait and has the shortest
call. If all members of a call were recorded, that duration is the transfer, and no clock is needed. A broadcast,
reduce, gather, scatter or send is not a barrier, and a sender may leave before the data arrives. Its transfer is the
longest time from the last arrival on, which must be longer than the clock error. If one member left before another
arrived, part of the transfer was over by then, and the call gives no sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from lostflops.account.ledger.call_sizes import SIZE
from lostflops.core.units import pluralise
from lostflops.predict.costs.calibration import CalibratedCollective, CalibratedHost, Calibration
from lostflops.predict.costs.times import OPS, CommGroup

if TYPE_CHECKING:
    from lostflops.store.run import Run

_CALLS: Final = """
    with seen as (
        select a.meeting, a.is_transfer, a.seen, a.expected, a.wait, c.rank, c.op, c.dtype, c.stop - c.start as dur,
               {size} as bytes,
               r.host, r.device_index, coalesce(k.uncertainty, 0) as uncertainty,
               r.device is not null and l.kind = 'thread' as is_beside,
               c.op = 'send' and c.metadata = 'gloo' as is_noticed_late
        from arrivals a join collectives c on a.rank = c.rank and a.event = c.event
        join ranks r on r.rank = c.rank left join clocks k on k.rank = c.rank
        left join lanes l on l.rank = c.rank and l.lane = c.lane
    ), calls as (
        select meeting, bool_or(is_transfer) as is_transfer, count(distinct rank) as ranks,
               coalesce(max(expected), max(seen)) as expected, max(op) as op, max(dtype) as dtype, max(bytes) as bytes,
               min(dur) as shortest, max(if(is_noticed_late, null, dur - coalesce(wait, 0))) as longest,
               max(uncertainty) as uncertainty,
               bool_or(dur <= wait) as is_early, {hosts} as hosts,
               count(host) < count(*) as is_guessed, coalesce(bool_or(is_beside), false) as is_beside
        from seen group by meeting
    )
    select op, is_transfer, ranks, expected, hosts, bytes, shortest, longest, uncertainty, is_guessed, is_beside,
           is_early, dtype
    from calls order by meeting"""

_ONE_WAY: Final = ("broadcast", "reduce", "gather", "scatter", "send_recv")

_BY_NAME: Final = """case when count(host) = count(*) then count(distinct host)
    when count(device_index) = count(*) then ceil(count(distinct rank) / count(distinct device_index)) end"""


def learn(run: Run, ranks_per_host: int | None = None) -> Calibration:
    """Learn a calibration from a run's collectives. If neither hosts nor devices are recorded, `ranks_per_host` says
    which ranks share a host."""
    hosts = _BY_NAME if ranks_per_host is None else f"count(distinct rank // {int(ranks_per_host)})"
    learned = _Learned()
    for row in run.rows(_CALLS.format(hosts=hosts, size=SIZE)):
        learned.take(*row)
    unmatched = run.rows(
        "select count(*) from collectives c where not exists "
        "(select 1 from arrivals a where a.rank = c.rank and a.event = c.event)"
    )[0][0]
    return Calibration(
        **_facts(run),
        collectives=tuple(learned.collectives()),
        notes=tuple(_notes(learned, unmatched, is_told=ranks_per_host is not None)),
    )


@dataclass(slots=True, kw_only=True)
class _Learned:
    """Samples of calls, and counts of calls that gave none, by reason."""

    samples: dict[tuple[str, str, int, int, int, str | None], list[int]] = field(default_factory=dict)
    """By operation, level, ranks, hosts, size and type."""
    guessed: int = 0
    partial: int = 0
    unsized: int = 0
    unplaced: int = 0
    uncertain: int = 0
    other: int = 0
    beside: int = 0
    early: int = 0

    def take(self, op: str | None, is_transfer: bool, ranks: int, expected: int, hosts: int | None, *rest: Any) -> None:
        size, shortest, longest, uncertainty, is_guessed, is_beside, is_early, dtype = rest
        name = "send_recv" if is_transfer else op
        one_way = name in _ONE_WAY
        ns = longest if one_way else shortest
        if is_beside:
            self.beside += 1
        elif name is None or not size:
            self.unsized += 1
        elif name not in OPS:
            self.other += 1
        elif ranks < expected or ranks < 2:
            self.partial += 1
        elif hosts is None:
            self.unplaced += 1
        elif one_way and is_early:
            self.early += 1
        elif ns <= 0 or (one_way and uncertainty > ns):
            self.uncertain += 1
        else:
            level = CommGroup(ranks, int(hosts)).level
            if is_transfer:
                level = "pair.host" if hosts == 1 else "pair.across"
            self.guessed += is_guessed
            self.samples.setdefault((name, level, ranks, int(hosts), size, dtype), []).append(ns)

    def collectives(self) -> Iterator[CalibratedCollective]:
        for (op, level, ranks, hosts, size, dtype), ns in self.samples.items():
            yield CalibratedCollective(
                op=op, level=level, ranks=ranks, hosts=hosts, bytes=size, dtype=dtype, ns=tuple(ns)
            )


def _facts(run: Run) -> dict[str, Any]:
    rows = run.rows("select rank, host, device, backend from ranks order by rank")
    hosts: dict[str, list[int]] = {}
    for rank, host, *_ in rows:
        if host is not None:
            hosts.setdefault(host, []).append(rank)
    devices = {device for _, _, device, _ in rows}
    return {
        "world_size": run.world_size,
        "backend": next((backend for *_, backend in rows if backend), None),
        "device": "cpu" if devices <= {None} else "cuda",
        "device_name": next(iter(devices)) if len(devices) == 1 else None,
        "hosts": tuple(CalibratedHost(host=host, ranks=tuple(ranks)) for host, ranks in hosts.items()),
    }


def _notes(learned: _Learned, unmatched: int, *, is_told: bool) -> Iterator[str]:
    used = sum(map(len, learned.samples.values()))
    yield (
        f"Learned from {pluralise(used, 'call')} of a run, as the job ran them: alongside its compute and other groups."
    )
    reasons = (
        (learned.beside, "on the host of a job that uses accelerators"),
        (learned.unsized, "without a recorded operation or size"),
        (learned.other, "of operations without a cost model"),
        (learned.partial, "with members that were not recorded"),
        (learned.unplaced, "of ranks on unknown hosts"),
        (learned.early, "that one rank left before another arrived"),
        (learned.uncertain, "shorter than the clock error"),
    )
    if left := [f"{pluralise(count, 'call')} {why}" for count, why in reasons if count]:
        yield f"Left out: {'; '.join(left)}."
    if unmatched:
        yield f"{pluralise(unmatched, 'collective record')} could not be matched with other ranks."
    if learned.guessed and not is_told:
        yield "The run does not name its hosts: a group is assumed to be on as few hosts as its device numbers allow."
