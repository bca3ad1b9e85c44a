"""What all runs of a fleet show together: one answer for the terminal, JSON and Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lostflops.core.results import Block, Field, Figure, Result, Table
from lostflops.core.units import format_percent, format_time, pluralise
from lostflops.fleet.choose import ChosenRuns, FleetScope, Judgements, choose
from lostflops.fleet.hours import NOT_DETAILED, NS_PER_HOUR, USEFUL, read_hours, tabulate_groups, tabulate_hours
from lostflops.fleet.jobs import tabulate_fixes, tabulate_jobs
from lostflops.fleet.regressions import JobHistory
from lostflops.fleet.slow_hosts import SlowHosts

if TYPE_CHECKING:
    from lostflops.fleet.place import Fleet

COLUMNS: Final = (
    *("run", "name", "labels", "address", "start", "ranks", "device", "commit", "step_ns", "step_error", "mfu"),
    *("total_ns", "life", "window_ns", "lines", "findings"),
)
"""Columns that the tables of an answer read."""
JUDGED_BY_ALL: Final = (
    "Slow hosts and changes are judged by all runs of the same labels and days; hours lost are those of all their jobs."
)
_LARGEST: Final = 2
"""Losses that the first sentence names."""
_MOST_NAMED: Final = 3
_SMALL: Final = 1e-3
"""Share of the hours that needs no words."""
_COMMIT: Final = 10
"""Letters of a commit that sentences have."""
_DAY: Final = len("2026-01-31")
_COUNTS: Final = """
    select count(*), count(distinct name), coalesce(sum(total_ns), 0)::double, count(*) filter (window_ns > 0)
    from chosen"""


def answer_fleet(fleet: Fleet, scope: FleetScope, by: str = "", judged: Judgements | None = None) -> Result:
    """Return where the hours of all runs went, and what would return most of them."""
    columns = (*COLUMNS, "hosts") if by == "host" else COLUMNS
    with choose(fleet, scope, columns, judged) as chosen:
        return _answer(chosen, by)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFigures:
    """What was found in the chosen runs."""

    runs: int
    jobs: int
    whole: float
    """Time of all ranks in ns."""
    detailed: int
    """Runs with a step that was recorded in detail."""
    unit: str
    hours: Mapping[str, float]
    """Time by cause in ns."""
    fixes: Table
    hosts: SlowHosts
    changes: Table


def _answer(chosen: ChosenRuns, by: str) -> Result:
    connection = chosen.connection
    counts = connection.execute(_COUNTS).fetchall()[0]
    found = FleetFigures(
        runs=counts[0],
        jobs=counts[1],
        whole=counts[2],
        detailed=counts[3],
        unit=name_hours(chosen),
        hours=read_hours(connection),
        fixes=tabulate_fixes(connection),
        hosts=chosen.hosts,
        changes=tabulate_changes(chosen.histories),
    )
    groups = tabulate_groups(connection, by, chosen.labels) if by and by != "cause" else None
    first: list[Block] = [groups] if groups else []
    tables = found.fixes, tabulate_slow_hosts(found.hosts), found.changes, tabulate_jobs(connection, chosen.histories)
    return Result(
        name="fleet",
        title="Fleet",
        verdict=" ".join(_sentences(found)),
        blocks=(*first, tabulate_hours(found.hours), *(table for table in tables if table.rows)),
        notes=(
            *chosen.notes,
            *(_describe_no_host(groups, found) if groups and by == "host" else ()),
            *_notes(found, is_part=chosen.is_part),
        ),
        more=(
            *(table for table in tables if not table.rows),
            Figure("runs", found.runs),
            Figure("hours_in_all", found.whole / NS_PER_HOUR),
            Figure("labels", chosen.labels),
        ),
    )


def _sentences(found: FleetFigures) -> Iterator[str]:
    hours, whole, unit = found.hours, found.whole, found.unit
    least = "at least " if found.detailed < found.runs else ""
    share = format_percent(hours.get(USEFUL, 0.0) / (whole or 1))
    compute = f"{least}{share} is compute" if found.detailed else "compute is unknown"
    yield (
        f"{pluralise(found.runs, 'run')} of {pluralise(found.jobs, 'job')} used {format_hours(whole / NS_PER_HOUR)} "
        f"{unit}: {compute}."
    )
    losses = list_losses(hours)
    if losses:
        named = " and ".join(f"{line} ({format_percent(part)})" for line, part in losses[:_LARGEST])
        yield f"The largest losses are {named}."
    yield from describe_fix(found.fixes, unit)
    slow = found.hosts.slow
    if slow:
        named = ", ".join(f"{host.host} ({format_percent(host.slower)})" for host in slow[:_MOST_NAMED])
        more = f" and {len(slow) - _MOST_NAMED} more" if len(slow) > _MOST_NAMED else ""
        be = "is" if len(slow) == 1 else "are"
        yield f"{pluralise(len(slow), 'host')} {be} slow in job after job: {named}{more}."
    yield from describe_slower(found.changes)


def list_losses(hours: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return causes of lost time with their share of all hours, the largest first."""
    whole = sum(hours.values())
    return [(line, ns / whole) for line, ns in hours.items() if line not in (USEFUL, NOT_DETAILED) and whole]


def describe_fix(fixes: Table, unit: str, *, names_job: bool = True) -> Iterator[str]:
    """Say which fix would return most hours."""
    if fixes.rows:
        job, cause, _, saved, low, high, *_ = fixes.rows[0]
        spread = f" ({_between(low, high)})" if low is not None and high is not None else ""
        where = f" in job {job}" if names_job else ""
        yield f"Fixing {cause}{where} would return most: {format_hours(float(saved or 0))} {unit}{spread}."


def describe_slower(changes: Table) -> Iterator[str]:
    """Name the job that became slower by most, and how many others did."""
    slower = [row for row in changes.to_json() if row["is_now"] and row["slower"] > 0]
    if slower:
        first = max(slower, key=lambda row: row["slower"])
        commit = f" (commit {first['commit'][:_COMMIT]})" if first["commit"] else ""
        more = f", and {pluralise(len(slower) - 1, 'other job')} too" if len(slower) > 1 else ""
        yield (
            f"Job {first['job']} is {format_percent(first['slower'])} slower since "
            f"{format_time(first['start'])[:_DAY]}{commit}{more}."
        )


def name_hours(chosen: ChosenRuns) -> str:
    """Return what hours of ranks are called: some runs may have no GPU."""
    ((plain,),) = chosen.connection.execute("select count(*) filter (device is null) from chosen").fetchall()
    return "rank-hours" if plain else "GPU-hours"


def tabulate_changes(histories: Iterable[JobHistory]) -> Table:
    """Return the runs from which on a job is slower or faster, the newest change of each job first."""
    rows = []
    for job in histories:
        for number, change in enumerate(job.changes):
            ends = change.slower, change.low, change.high
            commits = change.commit, change.commit_before
            rows.append((job.job, job.ranks, *ends, change.start, *commits, change.run, number == 0))
    fields = (
        Field("job"),
        Field("ranks", "count"),
        Field("slower", "share"),
        Field("slower_low", "share", "from"),
        Field("slower_high", "share", "to"),
        Field("start", "time", "since"),
        Field("commit"),
        Field("commit_before", shown=False),
        Field("run", shown=False),
        Field("is_now", shown=False),
    )
    return Table("changes", "Jobs that became slower or faster", fields, tuple(rows), most_shown=10)


def format_hours(hours: float) -> str:
    """Return hours with three digits, or all of those before the point.

    >>> format_hours(1234567.8), format_hours(12.345), format_hours(0.00123)
    ('1,234,568', '12.3', '0.00123')
    """
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.3g}"


def _between(low: Any, high: Any) -> str:
    zero = "" if low else ": may be zero"
    return f"{format_hours(float(low))} to {format_hours(float(high))}{zero}"


def tabulate_slow_hosts(found: SlowHosts) -> Table:
    fields = (
        Field("host"),
        Field("slower", "share"),
        Field("slower_low", "share", "from"),
        Field("slower_high", "share", "to"),
        Field("probability", "share", "probability of slow"),
        Field("jobs", "count"),
        Field("runs", "count"),
        Field("since", "time"),
        Field("until", "time", shown=any(host.until for host in found.slow)),
        Field("lost_hours", "rate", "hours lost"),
    )
    rows = tuple(
        (
            *(host.host, host.slower, host.low, host.high, host.probability, host.jobs, host.runs, host.since),
            *(host.until, host.lost_rank_hours),
        )
        for host in found.slow
    )
    return Table("slow_hosts", "Slow hosts", fields, rows, most_shown=10)


def _describe_no_host(groups: Table, found: FleetFigures) -> Iterator[str]:
    """Name the share of hours that no host has, if there is any."""
    share = 1 - sum(row["hours"] for row in groups.to_json()) * NS_PER_HOUR / (found.whole or 1)
    if share > _SMALL:
        yield (
            "By host: only time in steps of runs that were recorded in detail belongs to a host. "
            f"{format_percent(share)} of all {found.unit}, outside steps or without detail, belong to none."
        )


def _notes(found: FleetFigures, *, is_part: bool) -> Iterator[str]:
    if found.detailed < found.runs:
        yield (
            f"{pluralise(found.runs - found.detailed, 'run')} recorded no step in detail: what is lost in their steps "
            "is unknown, and counts as training."
        )
    yield (
        "Shares of causes inside steps are those of the recorded steps, applied to all steps of the run. Work that a "
        "restart repeats counts as training."
    )
    if found.fixes.rows:
        yield (
            f"Fixes may save the same {found.unit}, so they do not add up. What to do: lostflops diagnose, on the run "
            "in which a fix saves most."
        )
    if found.hosts.slow:
        yield (
            f"Of the named hosts, at most {format_percent(found.hosts.false_share)} are healthy, on average over "
            "fleets, and more if there are few jobs. Hosts are compared with others of the same run that do the same "
            "work."
        )
    if is_part and (found.hosts.slow or found.changes.rows):
        yield JUDGED_BY_ALL
