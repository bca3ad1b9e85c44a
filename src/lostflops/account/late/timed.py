"""Which rank comes late to its collectives, by when hosts enqueue them? Feeds the judge with the timed steps.

A rank's lateness in a step is how much later than the first rank it enqueued a collective, at most, on one clock: that
of the only host, or the common clock, near the instant for which it holds. Collectives of normal steps count, transfers
do not; of a very long job those of its newest steps.

If the host computes, this is the rank that others wait for. An accelerator takes up collectives later: there it is a
late host, and says nothing about waits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.align.mesh import Mesh
from lostflops.account.late.judge import Floats, LateVerdict, judge
from lostflops.account.pace.blocks import Times
from lostflops.account.pace.normal import traced_attempt
from lostflops.account.pace.timed_steps import LateAnswer
from lostflops.account.pace.timings import PACED, JobPace, choose_pace, paces, within
from lostflops.core.results import Field, Table

if TYPE_CHECKING:
    from lostflops.store.run import Run

FEWEST: Final = 8
"""Fewest timed steps that are judged."""
MOST_ROWS: Final = 12
_HOSTS_AHEAD: Final = "Lateness is that of hosts, which run ahead of their devices: it is not the wait of a device."
_NEAR: Final = 60_000_000_000
_MOST: Final = 2_000_000
"""Ring entries that are read of a long job, the newest."""
_FEWEST_STEPS: Final = 200
"""Fewest steps that are read of a long job."""
_MOST_DRIFT: Final = 200e-6
"""Largest drift between clocks of hosts, in ns per ns; the common clock holds near its instant."""
_NEAREST: Final = 64
"""Timed steps next to the newest window in which waits for data are compared: a few loader workers starve a rank only
every few steps, and the trouble may have begun late in the job."""

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
        select group_id, seq, min(time) as first from placed group by group_id, seq having count(distinct rank) > 1
    )
    select rank, step, max(time - first) as ns from placed join met using (group_id, seq) group by rank, step"""
_LEADS: Final = f"""{_PLACED},
    met as (
        select min(step) as step,
               max(time) filter (rank in ({{late}})) - max(time) filter (rank not in ({{late}})) as ns
        from placed group by group_id, seq
    )
    select step, greatest(max(ns), 0) as ns from met where ns is not null group by step order by step"""
_ON_COMMON_CLOCK: Final = "created + correction + (drift * 1e-6 * (created + correction - instant))::bigint"


_WAITS: Final = f"""
    with {PACED},
    near as (
        select step from paced where settled order by abs(step - (select max(step) from steps)), step limit {_NEAREST}
    )
    select rank, step, data as ns from own join near using (step) where data is not null"""


@dataclass(frozen=True, slots=True)
class TimedLateness:
    """What the timed steps of an attempt say about its ranks."""

    verdict: LateVerdict = field(default_factory=LateVerdict)
    why_not: str = ""
    """Reason why no rank could be judged; empty if ranks were."""
    accelerated: bool = False
    waits: Mapping[int, float] = field(default_factory=dict)
    """How much longer than its peers a rank waits for data, as a part of the step; of ranks that do for certain."""

    @property
    def steps(self) -> int:
        return self.verdict.power.steps if self.verdict.power else 0

    def say(self) -> str:
        """Say which rank is late, or why that is unknown."""
        if self.why_not:
            return f"The late rank is unknown: {self.why_not}."
        if self.verdict.late:
            return " ".join(one.say("it comes last to its collectives") for one in self.verdict.late[:1])
        power = self.verdict.power
        return f"No rank is late.{'' if power is None else f' {power.say()}'}"

    def answer(self, limit: int = MOST_ROWS) -> LateAnswer:
        """Return the answer of a run that has no deep window."""
        fields = (
            Field("rank"),
            Field("lateness_ns", "ns", "after its peers"),
            Field("share", "share", "of a step"),
            Field("late_steps", "count", "late in steps"),
            Field("steps", "count", "of"),
            Field("is_late", label="late"),
        )
        rows = tuple(
            (one.rank, round(one.ns), one.share, one.late_steps, one.steps, one.is_late) for one in self.verdict.ranks
        )
        table = Table("enqueues", "When hosts enqueue collectives, per step", fields, rows, most_shown=limit)
        return LateAnswer(self.say(), table, (_HOSTS_AHEAD,) if self.accelerated and rows else ())


NOT_TIMED: Final = TimedLateness()


def judge_timed_steps(run: Run, mesh: Mesh, pace: JobPace | None = None) -> TimedLateness:
    """Judge the ranks of an attempt: of the one that the deep window is of, if no `pace` is given."""
    pace = pace or _traced_pace(run)
    if pace is None or not pace.p50:
        return TimedLateness(why_not="no normal step was recorded")
    ranks, hosts, unnamed, tied, uncertainty, devices = run.rows(_HOSTS.format(attempt=pace.attempt))[0]
    if ranks < 2:
        return TimedLateness(why_not="fewer than two ranks recorded when they enqueued collectives")
    one_host = hosts == 1 and not unnamed
    if not one_host and tied < ranks:
        return TimedLateness(why_not="the ranks are on several hosts, whose clocks are not aligned")
    unsure = 0.0 if one_host else float(uncertainty or 0) + _MOST_DRIFT * _NEAR
    late = run.columns(_LATE.format(**_terms(run, pace, is_one_host=one_host)))
    verdict = _judge(late, mesh, pace.p50, unsure)
    if verdict.power is None or verdict.power.steps < FEWEST:
        return TimedLateness(why_not=f"fewer than {FEWEST} normal steps show when two ranks with the same work enqueue")
    waited = _judge(run.columns(_WAITS.format(within=within((), pace.attempt))), mesh, pace.p50)
    return TimedLateness(verdict, "", devices > 0, {one.rank: one.share for one in waited.late})


def _judge(rows: Mapping[str, Floats], mesh: Mesh, step_ns: float, resolution: float = 0.0) -> LateVerdict:
    ranks, row = np.unique(rows["rank"], return_inverse=True)
    steps, column = np.unique(rows["step"], return_inverse=True)
    times = np.full((ranks.size, steps.size), np.nan)
    times[row, column] = rows["ns"]
    known = ranks.tolist()
    cohorts = mesh.cohorts(known)
    labels: Sequence[int] = [min(cohorts.get(rank, (rank,))) for rank in known]
    return judge(times, known, steps.tolist(), step_ns, labels, resolution=resolution)


def _first_step(run: Run, pace: JobPace) -> int:
    """Return the first step of the attempt that is looked at."""
    ((entries,),) = run.rows(f"select count(*) from enqueues where attempt = {pace.attempt}")
    steps = max(_FEWEST_STEPS, pace.steps * _MOST // max(int(entries), 1))
    return max(pace.first_step, pace.last_step + 1 - steps)


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
