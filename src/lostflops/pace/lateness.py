"""Which rank comes last to its collectives, by when hosts enqueue them.

A rank's lateness in a collective is how much later than the first rank it enqueued it, on one clock: that of the only
host, or the common one, near the instant for which that holds. Collectives of settled steps count, transfers do not. A
rank is named when it is the last in more steps than chance allows, and its median lateness is more than can be told.

Where the host computes, this is the rank that others wait for. An accelerator takes collectives up later: there it is a
late host, and says nothing about waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lostflops.blame.stragglers import Last, chance
from lostflops.pace.timings import PACED, Pace, within

if TYPE_CHECKING:
    from lostflops.store.run import Run

SMALLEST: Final = 0.01
"""Share of a step that the median lateness must reach."""
SIGNIFICANT: Final = 0.01
_NEAR: Final = 60_000_000_000
_MOST_DRIFT: Final = 200e-6
"""What clocks of hosts may drift apart, in ns per ns; the common clock holds near its instant."""

_HOSTS: Final = """
    with taking as (select distinct rank from enqueues where attempt = {attempt})
    select count(*), count(distinct host), count(*) filter (host is null),
           count(*) filter (method in ('reference', 'same host', 'collectives')),
           max(uncertainty), count(device)
    from taking join ranks using (rank) left join clocks using (rank)"""
_LATE: Final = f"""
    with {PACED},
    timed as (
        select e.rank, e.group_id, e.seq, e.created, t.step, t.stop
        from enqueues e asof join timings t
        on e.rank = t.rank and e.attempt = t.attempt and e.created >= t.start
        where e.attempt = {{attempt}} and not e.is_p2p and e.seq is not null and e.group_id is not null
    ),
    placed as (
        select timed.rank, group_id, seq, timed.step, min({{created}}) as time
        from timed join paced on timed.step = paced.step and paced.settled left join clocks on timed.rank = clocks.rank
        where timed.created < timed.stop {{near}}
        group by all
    ),
    met as (
        select group_id, seq, min(time) as first, max(time) as last, arg_max(rank, time) as late_rank
        from placed group by group_id, seq having count(distinct rank) > 1
    ),
    late as (
        select placed.rank, step, time - first as ns, placed.rank = late_rank and last > first as is_last
        from placed join met using (group_id, seq)
    ),
    stepped as (select step, rank, median(ns) as ns from late group by step, rank),
    ended as (
        select step, arg_max(rank, ns) as late_rank, max(ns) as most, count(*) as seen from stepped group by step
    ),
    by_step as (
        select rank, count(*) as steps, count(*) filter (rank = late_rank and most > 0) as steps_last,
               avg(1.0 / seen) as chance
        from stepped join ended using (step) where seen > 1 group by rank
    ),
    by_rank as (
        select rank, count(*) as collectives, count(*) filter (is_last) as times, median(ns) as ns
        from late group by rank
    )
    select rank, collectives, times, steps, steps_last, chance, ns from by_rank join by_step using (rank)
    order by steps_last desc, ns desc, rank"""
_ON_COMMON_CLOCK: Final = "created + correction + (drift * 1e-6 * (created + correction - instant))::bigint"


@dataclass(frozen=True, slots=True)
class Late:
    """How often a rank was the last, in collectives and in steps, and its median lateness."""

    rank: int
    collectives: int
    last: int
    steps: int
    steps_last: int
    lateness: int
    p_value: float


@dataclass(frozen=True, slots=True)
class Lateness:
    """Ranks that met others, the one that is last most often first. `why_not` says what keeps us from telling."""

    ranks: tuple[Late, ...]
    slowest: Late | None
    why_not: str = ""
    resolution: int = 0
    accelerated: bool = False


def lateness(run: Run, pace: Pace) -> Lateness:
    """Who is last, in the attempt of the pace."""
    ranks, hosts, unnamed, tied, uncertainty, devices = run.sql(_HOSTS.format(attempt=pace.attempt)).fetchall()[0]
    if ranks < 2:
        return Lateness((), None, "fewer than two ranks recorded when they enqueued collectives")
    if pace.p50 is None:
        return Lateness((), None, "no step is settled")
    one_host = hosts == 1 and not unnamed
    if not one_host and tied < ranks:
        return Lateness((), None, "the ranks are on several hosts, and nothing ties their clocks to each other")
    unsure = 0.0 if one_host else float(uncertainty or 0) + _MOST_DRIFT * _NEAR
    query = _LATE.format(
        within=within((), pace.attempt),
        attempt=pace.attempt,
        created="created" if one_host else _ON_COMMON_CLOCK,
        near="" if one_host else f"and abs(created + correction - instant) < {_NEAR}",
    )
    found = [
        Late(rank, collectives, times, steps, last, round(ns), chance(Last(last, steps, odds), ranks))
        for rank, collectives, times, steps, last, odds, ns in run.sql(query).fetchall()
    ]
    resolution = round(max(SMALLEST * pace.p50, unsure))
    if not found:
        return Lateness((), None, "no collective of a settled step was recorded on two ranks", resolution, devices > 0)
    first = found[0]
    stands_out = first.p_value <= SIGNIFICANT and first.lateness >= resolution
    return Lateness(tuple(found), first if stands_out else None, "", resolution, devices > 0)
