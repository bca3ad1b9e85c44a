"""The jobs of a fleet: what each used and reaches beside jobs on the same device, and which fixes return most."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from lostflops.account.job.life import TRAINING
from lostflops.core.results import Field, Table
from lostflops.fleet.hours import NS_PER_HOUR
from lostflops.fleet.regressions import JobHistory, JobStatus

if TYPE_CHECKING:
    import duckdb

MOST_FIXES: Final = 10
FEWEST_PEERS: Final = 4
"""Fewest jobs on a device, with this one, among which a place is stated."""
_TRAINED: Final = f"coalesce(map_extract_value(life, '{TRAINING}'), 0)::double"
_FIXES: Final = f"""
    with each as (select name, run, address, {_TRAINED} as training, unnest(findings) as finding from chosen),
    priced as (
        select name, run, any_value(address) as address, finding.cause as cause, finding.fix as fix,
               max(finding.gain * training) as saved, max(finding.gain_low * training) as low,
               max(finding.gain_high * training) as high
        from each where finding.level = 'found' and finding.gain > 0 group by name, run, cause, fix
    ),
    largest as (
        select name, run, cause, max(saved) as saved, arg_max(low, saved) as low, arg_max(high, saved) as high,
               arg_max(fix, saved) as fix, any_value(address) as address from priced group by name, run, cause
    )
    select name, cause, count(*), sum(saved) as whole, if(count(low) = count(*), sum(greatest(low, 0)), null),
           if(count(high) = count(*), sum(high), null), arg_max(fix, saved), arg_max(address, saved)
    from largest group by name, cause order by whole desc, name, cause limit {MOST_FIXES}"""
_JOBS: Final = f"""
    with newest as (
        select name, ranks, device, count(*) as runs, sum(total_ns)::double as ns,
               sum({_TRAINED}) as trained,
               arg_max(mfu, start) filter (mfu is not null) as mfu,
               arg_max(step_ns, start) filter (step_ns is not null) as step_ns, max(start) as start
        from chosen group by name, ranks, device
    )
    select name, ranks, device, runs, ns, trained / nullif(ns, 0), step_ns, mfu,
           if(mfu is null or count(mfu) over same < {FEWEST_PEERS}, null,
              (rank() over (partition by device, mfu is null order by mfu) - 1) / nullif(count(mfu) over same - 1, 0)),
           start
    from newest window same as (partition by device) order by ns desc, name, ranks"""


def tabulate_fixes(fleet: duckdb.DuckDBPyConnection) -> Table:
    """Return the fixes that return most hours: what each would have saved in the steps of all runs of its job."""
    rows = tuple(
        (job, cause, runs, saved / NS_PER_HOUR, low and low / NS_PER_HOUR, high and high / NS_PER_HOUR, address, fix)
        for job, cause, runs, saved, low, high, fix, address in fleet.execute(_FIXES).fetchall()
    )
    fields = (
        Field("job"),
        Field("cause"),
        Field("runs", "count"),
        Field("hours", "rate", "hours saved"),
        Field("hours_low", "rate", "from"),
        Field("hours_high", "rate", "to"),
        Field("run", label="saves most in"),
        Field("fix", shown=False),
    )
    return Table("fixes", "Fixes that return most", fields, rows)


def tabulate_jobs(fleet: duckdb.DuckDBPyConnection, histories: Iterable[JobHistory]) -> Table:
    """Return each job, by name, ranks and device, with the share of jobs on the same device that reach a lower MFU."""
    known = {(one.job, one.ranks, one.device): one for one in histories}
    rows = tuple(
        (
            *(name, ranks, device, runs, ns / NS_PER_HOUR, trained, None if step is None else round(step), mfu, place),
            *(start, *_describe_pace(known.get((name, ranks, device)))),
        )
        for name, ranks, device, runs, ns, trained, step, mfu, place, start in fleet.execute(_JOBS).fetchall()
    )
    fields = (
        Field("job"),
        Field("ranks", "count"),
        Field("device", shown=False),
        Field("runs", "count"),
        Field("hours", "rate"),
        Field("training", "share", "time in steps"),
        Field("step_ns", "ns", "step"),
        Field("mfu", "share", "MFU"),
        Field("better_than", "share", "peers with lower MFU"),
        Field("start", "time", "newest run", shown=False),
        Field("status", label="step time", shown=False),
        Field("slower", "share", shown=False),
    )
    return Table("jobs", "Jobs", fields, rows, most_shown=12)


def _describe_pace(history: JobHistory | None) -> tuple[str, float | None]:
    """Return the status of a job, and how much slower it is than before its newest change."""
    if history is None:
        return JobStatus.UNKNOWN, None
    return history.status, history.slower if history.changes else None
