"""Calibration samples, learned from a run's own collectives.

Each call of which all members were recorded gives one sample: its transfer without waits, as `transfer_times` has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from lostflops.account.align.transfer_times import MEASURED
from lostflops.core.units import pluralise
from lostflops.predict.costs.calibration import CalibratedCollective, CalibratedHost, Calibration
from lostflops.predict.costs.times import OPS, CommGroup

if TYPE_CHECKING:
    from lostflops.store.run import Run

_CALLS: Final = f"""
    with {MEASURED.format(within="")},
    placed as (
        select meeting, {{hosts}} as hosts, count(host) < count(*) as is_guessed,
               coalesce(bool_or(device is not null and kind = 'thread'), false) as is_beside
        from (
            select m.meeting, r.rank, r.host, r.device, r.device_index, l.kind
            from met m join collectives c on m.rank = c.rank and m.event = c.event join ranks r on r.rank = c.rank
            left join lanes l on l.rank = c.rank and l.lane = c.lane
        ) group by meeting
    )
    select op, is_pair, ranks, expected, hosts, bytes, ns, is_one_way and is_early, is_uncertain, is_guessed, is_beside,
           dtype
    from calls join placed using (meeting) order by meeting"""

_BY_NAME: Final = """case when count(host) = count(*) then count(distinct host)
    when count(device_index) = count(*) then ceil(count(distinct rank) / count(distinct device_index)) end"""


def learn(run: Run, ranks_per_host: int | None = None) -> Calibration:
    """Learn a calibration from a run's collectives. If neither hosts nor devices are recorded, `ranks_per_host` says
    which ranks share a host."""
    hosts = _BY_NAME if ranks_per_host is None else f"count(distinct rank // {int(ranks_per_host)})"
    learned = _Learned()
    for row in run.rows(_CALLS.format(hosts=hosts)):
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

    def take(self, name: str | None, is_pair: bool, ranks: int, expected: int, hosts: int | None, *rest: Any) -> None:
        size, ns, is_early, is_uncertain, is_guessed, is_beside, dtype = rest
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
        elif is_early:
            self.early += 1
        elif ns <= 0 or is_uncertain:
            self.uncertain += 1
        else:
            level = CommGroup(ranks, int(hosts)).level
            if is_pair:
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
