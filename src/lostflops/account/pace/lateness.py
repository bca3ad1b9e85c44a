"""Which rank comes last to its collectives, by when hosts enqueue them?

A rank's lateness in a collective is how much later than the first rank it enqueued it, on one clock: that of the only
host, or the common clock, near the instant for which it holds. Collectives of settled steps count, transfers do not; of
a very long job those of its newest steps. A rank is named if it is last in at least half of its steps, more often than
chance allows, and its median lateness reaches the resolution. Chance alone is not enough: what disturbs a rank lasts
for some steps, so steps are not independent, and in very many steps the least preference exceeds chance.

If the host computes, this is the rank that others wait for. An accelerator takes up collectives later: there it is a
late host, and says nothing about waits.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.blame.habits import FEWEST, SMALLEST, Habit
from lostflops.account.blame.stragglers import LastArrivals, chance
from lostflops.account.pace.blocks import Times
from lostflops.account.pace.data_waits import find_data_waits
from lostflops.account.pace.last_change import find_last_change
from lostflops.account.pace.normal import traced_attempt
from lostflops.account.pace.timings import PACED, JobPace, choose_pace, paces, within

if TYPE_CHECKING:
    from lostflops.store.run import Run

SIGNIFICANT: Final = 0.01
OFTEN: Final = 0.5
"""Share of its steps in which a rank must be the last."""
ABOVE_CHANCE: Final = 1.5
"""A rank must be last this many times as often as if all were alike; as in `lostflops watch`."""
_NEAR: Final = 60_000_000_000
_MOST: Final = 2_000_000
"""Ring entries that are read of a long job, the newest, to save memory: a median holds all its values."""
_FEWEST_STEPS: Final = 200
"""Fewest steps that are read of a long job."""
_MOST_DRIFT: Final = 200e-6
"""Largest drift between clocks of hosts, in ns per ns; the common clock holds near its instant."""

_HOSTS: Final = """
    with taking as (select distinct rank from enqueues where attempt = {attempt})
    select count(*), count(distinct host), count(*) filter (host is null),
           count(*) filter (method in ('reference', 'same host', 'collectives')),
           max(uncertainty), count(device)
    from taking join ranks using (rank) left join clocks using (rank)"""
_PLACED: Final = f"""
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
    )"""
_LATE: Final = f"""{_PLACED},
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
               avg(1.0 / seen) as chance,
               avg((rank = late_rank and most > 0)::integer) filter (step <= (select median(step) from ended)) as early,
               avg((rank = late_rank and most > 0)::integer) filter (step > (select median(step) from ended)) as later
        from stepped join ended using (step) where seen > 1 group by rank
    ),
    by_rank as (
        select rank, count(*) as collectives, count(*) filter (is_last) as times, median(ns) as ns
        from late group by rank
    )
    select rank, collectives, times, steps, steps_last, chance, ns, coalesce(early, 0), coalesce(later, 0)
    from by_rank join by_step using (rank)
    order by steps_last desc, ns desc, rank"""
_LEADS: Final = f"""{_PLACED},
    met as (
        select min(step) as step,
               max(time) filter (rank in ({{late}})) - max(time) filter (rank not in ({{late}})) as ns
        from placed group by group_id, seq
    )
    select step, greatest(max(ns), 0) as ns from met where ns is not null group by step order by step"""
_ON_COMMON_CLOCK: Final = "created + correction + (drift * 1e-6 * (created + correction - instant))::bigint"


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """How often a rank was the last, in collectives and in steps, and its median lateness."""

    rank: int
    collectives: int
    last: int
    steps: int
    steps_last: int
    lateness: int
    p_value: float
    halves: tuple[float, float]
    """Share of the first and of the second half of its steps in which it was the last."""


@dataclass(frozen=True, slots=True)
class JobLateness:
    """Lateness of the ranks of a job."""

    ranks: tuple[Late, ...]
    """Ranks that met others, the one that is last most often first."""
    slowest: Late | None
    why_not: str = ""
    """Reason why the slowest rank is unknown; empty if it could be looked for."""
    resolution: int = 0
    accelerated: bool = False


def _first_step(run: Run, pace: JobPace) -> int:
    """Return the first step of the attempt that is looked at."""
    ((entries,),) = run.rows(f"select count(*) from enqueues where attempt = {pace.attempt}")
    steps = max(_FEWEST_STEPS, pace.steps * _MOST // max(int(entries), 1))
    return max(pace.first_step, pace.last_step + 1 - steps)


def lateness(run: Run, pace: JobPace) -> JobLateness:
    """Return which rank is last, in the attempt of `pace`."""
    ranks, hosts, unnamed, tied, uncertainty, devices = run.rows(_HOSTS.format(attempt=pace.attempt))[0]
    if ranks < 2:
        return JobLateness((), None, "fewer than two ranks recorded when they enqueued collectives")
    if pace.p50 is None:
        return JobLateness((), None, "no normal step was recorded")
    one_host = hosts == 1 and not unnamed
    if not one_host and tied < ranks:
        return JobLateness((), None, "the ranks are on several hosts, whose clocks are not aligned")
    unsure = 0.0 if one_host else float(uncertainty or 0) + _MOST_DRIFT * _NEAR
    query = _LATE.format(**_terms(run, pace, is_one_host=one_host))
    rows = run.rows(query)
    found = [
        Late(
            rank=rank,
            collectives=collectives,
            last=times,
            steps=steps,
            steps_last=last,
            lateness=round(ns),
            p_value=chance(LastArrivals(last, steps, odds), ranks),
            halves=(early, later),
        )
        for rank, collectives, times, steps, last, odds, ns, early, later in rows
    ]
    resolution = round(max(SMALLEST * pace.p50, unsure))
    if not found:
        return JobLateness(
            (), None, "no collective of a normal step was recorded on two ranks", resolution, devices > 0
        )
    first, odds = found[0], rows[0][5]
    is_often = first.steps_last >= max(OFTEN, ABOVE_CHANCE * odds) * first.steps
    stands_out = is_often and first.p_value <= SIGNIFICANT and first.lateness >= resolution
    return JobLateness(tuple(found), first if stands_out else None, "", resolution, devices > 0)


def _terms(run: Run, pace: JobPace, *, is_one_host: bool) -> dict[str, object]:
    """Return the terms that the queries of an attempt are formatted with."""
    return {
        "within": within((), pace.attempt),
        "attempt": pace.attempt,
        "first": _first_step(run, pace) if is_one_host else pace.first_step,
        "created": "created" if is_one_host else _ON_COMMON_CLOCK,
        "near": "" if is_one_host else f"and abs(created + correction - instant) < {_NEAR}",
    }


def leads(run: Run, late: Collection[int]) -> Times:
    """Return for each normal step by how much these ranks came to a collective after all others, at most, in ns.

    Steps would be shorter by as much if they came with the others. Empty if ranks are on several hosts.
    """
    pace = _traced_pace(run)
    if pace is None or run.rows("select count(distinct host) from attempts")[0][0] != 1:
        return np.empty(0)
    terms = _terms(run, pace, is_one_host=True)
    rows = run.columns(_LEADS.format(**terms, late=", ".join(map(str, sorted(late)))))
    return np.asarray(rows["ns"], np.float64)


def _traced_pace(run: Run) -> JobPace | None:
    """Return the pace of the attempt that the deep window is of, else that of the newest."""
    known, traced = paces(run), traced_attempt(run)
    return next((one for one in known if one.attempt == traced), None) or choose_pace(known)


def find_habits(run: Run) -> dict[int, Habit]:
    """Return the habit of each rank in the timed steps of the attempt that the deep window is of.

    Empty if these do not show it, as on accelerators, whose hosts run ahead. If the job has been slower since some
    step, only steps from there on count. `blame.judgement.judge` uses habits to decide which rank is late.
    """
    pace = _traced_pace(run)
    if pace is None or not pace.p50:
        return {}
    change = find_last_change(run, pace.attempt)
    since = change.step if change is not None else None
    found = lateness(run, pace if since is None else replace(pace, first_step=since))
    if found.why_not or found.accelerated:
        return {}
    waits = find_data_waits(run, pace)
    return {
        one.rank: _habit(one, found.resolution, pace.p50, waits.get(one.rank, 0.0), since)
        for one in found.ranks
        if one.steps >= FEWEST
    }


def _habit(one: Late, resolution: int, step: float, waits: float, since: int | None) -> Habit:
    """Return the habit of a rank; lateness below the resolution is not lateness."""
    late = one.lateness / step if one.lateness >= resolution else 0.0
    return Habit(one.steps, one.steps_last, one.halves, late, one.p_value, waits / step, since)
