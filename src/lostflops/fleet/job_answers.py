"""The jobs of a fleet, each with its step times over its runs, and the history of one job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from lostflops.core.results import Block, Field, Figure, Mark, Plot, Result, Series, Table
from lostflops.core.units import format_ns, format_percent, pluralise
from lostflops.fleet.answer import (
    COLUMNS,
    JUDGED_BY_ALL,
    describe_fix,
    describe_slower,
    format_hours,
    list_losses,
    name_hours,
    tabulate_changes,
    tabulate_slow_hosts,
)
from lostflops.fleet.choose import CHOSEN, ChosenRuns, FleetScope, Judgements, choose
from lostflops.fleet.hours import NS_PER_HOUR, USEFUL, read_hours, tabulate_hours
from lostflops.fleet.jobs import tabulate_fixes, tabulate_jobs
from lostflops.fleet.regressions import JobHistory, JobStatus

if TYPE_CHECKING:
    from lostflops.fleet.place import Fleet

SPARK: Final = "steps_ns"
"""Key of the step times of a job's newest runs, in their order, beside its row."""
MOST_SPARKS: Final = 40
"""Newest runs whose step times are beside a row."""
MOST_RUNS: Final = 1000
"""Newest runs that a history lists."""
_ORDER: Final = (
    *("job", "status", "slower", "step_ns", "mfu", "better_than", "hours", "training", "runs", "ranks", "device"),
    "start",
)
"""Columns of a list of jobs: first what may be wrong."""
_SPARKS: Final = f"""
    select name, ranks, device, list(step_ns order by start, run)[-{MOST_SPARKS}:] from {CHOSEN}
    where step_ns > 0 group by all"""
_RUNS: Final = f"""
    select run, start, ranks, device, step_ns, mfu, total_ns::double / {NS_PER_HOUR},
           coalesce(map_extract_value(life, 'training'), 0)::double / nullif(total_ns, 0)::double, commit,
           list_transform(list_filter(findings, lambda one: one.level = 'found' and one.gain > 0),
               lambda one: {{cause: one.cause, gain: one.gain}}),
           address
    from {CHOSEN} order by start desc, run desc"""
RUN_FIELDS: Final = (
    Field("run"),
    Field("start", "time", "started"),
    Field("ranks", "count"),
    Field("device"),
    Field("step_ns", "ns", "step"),
    Field("mfu", "share", "MFU"),
    Field("hours", "rate"),
    Field("training", "share", "in steps"),
    Field("commit"),
    Field("cause", label="largest fix"),
    Field("gain", "share", "saves of the step"),
    Field("address", shown=False),
)


def answer_jobs(fleet: Fleet, scope: FleetScope, judged: Judgements | None = None) -> Result:
    """Return all jobs, the largest first."""
    with choose(fleet, scope, COLUMNS, judged) as chosen:
        table = tabulate_jobs(chosen.connection, chosen.histories)
        sparks = {(*key,): list(steps) for *key, steps in chosen.connection.execute(_SPARKS).fetchall()}
        more = tuple({SPARK: sparks.get((row[0], row[1], row[2]), [])} for row in table.rows)
        return Result(
            name="fleet_jobs",
            title="Jobs",
            verdict=" ".join(_summarise_jobs(table, chosen)),
            blocks=(replace(arrange_columns(table, _ORDER), more=more, most_shown=None),),
            notes=(*chosen.notes, _EXPLAINED),
        )


_EXPLAINED: Final = (
    "A job is its name with its ranks and device. Slower or faster: since its newest change. Unknown: it has fewer "
    "than six runs with a step time. Peers with lower MFU: the share of the other jobs on the same device; - if there "
    "are fewer than three with an MFU."
)


def arrange_columns(table: Table, names: Sequence[str]) -> Table:
    """Return a table with these columns, all shown, in this order."""
    places = [[field.name for field in table.fields].index(name) for name in names]
    fields = tuple(replace(table.fields[place], shown=True) for place in places)
    return replace(table, fields=fields, rows=tuple(tuple(row[place] for place in places) for row in table.rows))


def hide_column(table: Table, name: str) -> Table:
    """Return a table that shows the column only in JSON."""
    return replace(table, fields=tuple(replace(one, shown=one.shown and one.name != name) for one in table.fields))


def _summarise_jobs(table: Table, chosen: ChosenRuns) -> Iterator[str]:
    rows = table.to_json()
    counts = {status: sum(row["status"] == status for row in rows) for status in JobStatus}
    slower, faster, unknown = (counts[one] for one in (JobStatus.SLOWER, JobStatus.FASTER, JobStatus.UNKNOWN))
    yield (
        f"{pluralise(len(rows), 'job')}: {slower:,} slower than before, {faster:,} faster, "
        f"{counts[JobStatus.UNCHANGED]:,} unchanged, {unknown:,} with too few runs to know."
    )
    yield from describe_slower(tabulate_changes(chosen.histories))


def answer_job(fleet: Fleet, scope: FleetScope, judged: Judgements | None = None) -> Result:
    """Return the history of the job that a scope names."""
    with choose(fleet, scope, COLUMNS, judged) as chosen:
        runs = tabulate_runs(chosen)
        hours = read_hours(chosen.connection)
        fixes = hide_column(tabulate_fixes(chosen.connection), "job")
        changes = replace(hide_column(tabulate_changes(chosen.histories), "job"), title="Changes of its step time")
        slow = tabulate_slow_hosts(chosen.hosts)
        tables = changes, fixes, slow
        blocks: tuple[Block, ...] = (
            *_plot_history(runs, chosen.histories),
            *(table for table in tables if table.rows),
            tabulate_hours(chosen.connection),
            runs,
        )
        return Result(
            name="fleet_job",
            title=f"Job {scope.job}",
            verdict=" ".join(_describe_job(chosen, runs, hours, fixes, changes)),
            blocks=blocks,
            notes=(*chosen.notes, *_explain_parts(chosen)),
            more=(*(table for table in tables if not table.rows), Figure("job", scope.job)),
        )


def _describe_job(
    chosen: ChosenRuns, runs: Table, hours: dict[str, float], fixes: Table, changes: Table
) -> Iterator[str]:
    slower = list(describe_slower(changes))
    if slower:
        yield slower[0]
    else:
        yield _describe_status(chosen)
    unit, whole = name_hours(chosen), sum(hours.values())
    losses = [f"{line} ({format_percent(share)})" for line, share in list_losses(hours)[:1]]
    largest = f"; the largest loss is {losses[0]}" if losses else ""
    useful = f": {format_percent(hours[USEFUL] / whole)} is compute" if hours.get(USEFUL) else ""
    count = len(runs.rows) + runs.left_out
    yield f"Its {pluralise(count, 'run')} used {format_hours(whole / NS_PER_HOUR)} {unit}{useful}{largest}."
    newest = next((row for row in runs.to_json() if row["step_ns"]), None)
    if newest is not None:
        reached = f" at {format_percent(newest['mfu'])} MFU" if newest["mfu"] is not None else ""
        yield f"The newest run took {format_ns(newest['step_ns'])} per step{reached}."
    yield from describe_fix(fixes, unit, names_job=False)


def _describe_status(chosen: ChosenRuns) -> str:
    """Say how a job without a slower step fares."""
    job = chosen.scope.job
    faster = [change for one in chosen.histories for change in one.changes[:1]]
    if faster:
        return f"Job {job} is {format_percent(-faster[0].slower)} faster since its newest change."
    if any(one.status is JobStatus.UNCHANGED for one in chosen.histories):
        return f"Job {job} is as fast as ever: no change of its step time was found."
    return f"Job {job} has too few runs to see whether it became slower: six with a step time are needed."


def _explain_parts(chosen: ChosenRuns) -> Iterator[str]:
    if len(chosen.histories) > 1:
        yield "Runs on other ranks or devices are series of their own: their step times are not compared."
    if chosen.hosts.slow:
        yield JUDGED_BY_ALL
    if any(one.changes for one in chosen.histories):
        yield "A change is shown if chance alone would show one in at most 1 of 100 unchanged series of 40 runs."


def tabulate_runs(chosen: ChosenRuns) -> Table:
    """Return the newest of the chosen runs, the newest first, with the fix that saves most of each."""
    found = chosen.connection.execute(_RUNS).fetchmany(MOST_RUNS)
    ((count,),) = chosen.connection.execute(f"select count(*) from {CHOSEN}").fetchall()
    rows = tuple(
        (*row[:4], None if row[4] is None else round(row[4]), *row[5:9], *_choose_fix(fixes), address)
        for *row, fixes, address in found
    )
    return Table("runs", "Runs, newest first", RUN_FIELDS, rows, left_out=count - len(rows), most_shown=40)


def _choose_fix(fixes: Sequence[dict[str, Any]]) -> tuple[str | None, float | None]:
    """Return cause and gain of the finding that saves most."""
    best = max(fixes, key=lambda fix: fix["gain"], default=None)
    return (None, None) if best is None else (best["cause"], best["gain"])


def _plot_history(runs: Table, histories: Sequence[JobHistory]) -> Iterator[Plot]:
    """Yield step times by start, a series for each number of ranks and device, and where they changed."""
    series: dict[str, list[tuple[float, float]]] = {}
    for row in reversed(runs.to_json()):
        if row["step_ns"]:
            name = f"{pluralise(row['ranks'], 'rank')} of {row['device'] or 'CPU'}"
            series.setdefault(name, []).append((row["start"], row["step_ns"]))
    if any(len(points) > 1 for points in series.values()):
        marks = [
            Mark(f"{format_percent(abs(one.slower))} {'slower' if one.is_slower else 'faster'}", one.start)
            for job in histories
            for one in job.changes
        ]
        yield Plot(
            name="history",
            title="Step time of each run",
            x=Field("start", "time", "started"),
            y=Field("step_ns", "ns", "step"),
            series=tuple(Series(name, "marks", tuple(points)) for name, points in series.items()),
            log_x=False,
            log_y=False,
            marks=tuple(marks),
        )
