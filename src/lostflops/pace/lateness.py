"""Which rank comes last to its collectives, by when hosts enqueue them.

A rank's lateness in a collective is how much later than the first rank it enqueued it, on one clock: that of the only
host, or the common one, near the instant for which that holds. Collectives of settled steps count, transfers do not; of
a very long job those of its newest steps. A rank is named when it is last in most steps, in more than chance allows,
and its median lateness is more than can be told. Chance alone is no measure: what disturbs a rank lasts for some steps,
so that steps are not independent, and in very many steps the least preference is beyond chance.

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
OFTEN: Final = 0.5
"""Share of its steps in which it must be the last,"""
ABOVE_CHANCE: Final = 1.5
"""and how many times what would be its share if all were alike; as in `lostflops watch`."""
_NEAR: Final = 60_000_000_000
_MOST: Final = 2_000_000
"""Of a long job the newest steps are looked at, about so many entries of rings, and at least so many steps: medians
hold what they are of in memory."""
_FEWEST_STEPS: Final = 200
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
    begun as (
        select rank, min(start) as start from timings where attempt = {{attempt}} and step >= {{first}} group by rank
    ),
    timed as (
        select e.rank, e.group_id, e.seq, e.created, t.step, t.stop
        from (select enqueues.* from enqueues join begun using (rank) where created >= begun.start) e
        asof join timings t on e.rank = t.rank and e.attempt = t.attempt and e.created >= t.start
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


def _first_step(run: Run, pace: Pace) -> int:
    """From which the steps of the attempt are looked at."""
    ((entries,),) = run.sql(f"select count(*) from enqueues where attempt = {pace.attempt}").fetchall()
    steps = max(_FEWEST_STEPS, pace.steps * _MOST // max(int(entries), 1))
    return max(pace.first_step, pace.last_step + 1 - steps)


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
        first=_first_step(run, pace) if one_host else pace.first_step,
        created="created" if one_host else _ON_COMMON_CLOCK,
        near="" if one_host else f"and abs(created + correction - instant) < {_NEAR}",
    )
    rows = run.sql(query).fetchall()
    found = [
        Late(rank, collectives, times, steps, last, round(ns), chance(Last(last, steps, odds), ranks))
        for rank, collectives, times, steps, last, odds, ns in rows
    ]
    resolution = round(max(SMALLEST * pace.p50, unsure))
    if not found:
        return Lateness((), None, "no collective of a settled step was recorded on two ranks", resolution, devices > 0)
    first, odds = found[0], rows[0][5]
    is_often = first.steps_last >= max(OFTEN, ABOVE_CHANCE * odds) * first.steps
    stands_out = is_often and first.p_value <= SIGNIFICANT and first.lateness >= resolution
    return Lateness(tuple(found), first if stands_out else None, "", resolution, devices > 0)
