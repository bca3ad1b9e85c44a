"""The hosts of a fleet, most likely slow first, and the history of one host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from lostflops.core.results import Field, Figure, Mark, Plot, Result, Series, Table
from lostflops.core.units import format_interval, format_percent, format_time, pluralise
from lostflops.fleet.answer import format_hours, name_hours
from lostflops.fleet.choose import CHOSEN, ChosenRuns, FleetScope, Judgements, choose
from lostflops.fleet.hours import NS_PER_HOUR, USEFUL
from lostflops.fleet.slow_hosts import HostVerdict, SlowHosts

if TYPE_CHECKING:
    from lostflops.fleet.place import Fleet

MOST_HOSTS: Final = 1000
"""Hosts that a list has: the most likely slow ones."""
MOST_RUNS: Final = 1000
_DAY: Final = len("2026-01-31")
_COLUMNS: Final = ("run", "name", "address", "start", "total_ns")
_HISTORY: Final = f"""
    with parts as (
        select run, name, address, start, total_ns, unnest(list_filter(hosts, lambda one: one.host = ?)) as part
        from {CHOSEN}
    )
    select run, name, start, part.device, part.ranks, part.slower, part.slower_error,
           total_ns::double / {NS_PER_HOUR}, part.lines, address
    from parts order by start desc, run desc"""
_FIELDS: Final = (
    Field("run"),
    Field("job"),
    Field("start", "time", "started"),
    Field("device"),
    Field("ranks", "count"),
    Field("slower", "share", "slower than peers"),
    Field("slower_error", "share", "standard error"),
    Field("hours", "rate", "hours of the run"),
    Field("cause", label="largest loss"),
    Field("cause_share", "share", "its share"),
    Field("address", shown=False),
)


def answer_hosts(fleet: Fleet, scope: FleetScope, judged: Judgements | None = None) -> Result:
    """Return the hosts of a fleet, most likely slow first."""
    with choose(fleet, scope, ("run", "name", "ranks", "device"), judged) as chosen:
        table = _tabulate_hosts(chosen.hosts)
        return Result(
            name="fleet_hosts",
            title="Hosts",
            verdict=" ".join(_summarise_hosts(chosen.hosts, name_hours(chosen))),
            blocks=(table,),
            notes=(*chosen.notes, *_explain_hosts(chosen.hosts)),
        )


def answer_host(fleet: Fleet, scope: FleetScope, judged: Judgements | None = None) -> Result:
    """Return the history of the host that a scope names."""
    with choose(fleet, scope, (*_COLUMNS, "ranks", "device", "hosts"), judged) as chosen:
        runs = _tabulate_history(chosen)
        verdict = next((one for one in chosen.hosts.hosts if one.host == scope.host), None)
        figures = () if verdict is None else (_tabulate_hosts(SlowHosts(**_alone(chosen.hosts, verdict))),)
        return Result(
            name="fleet_host",
            title=f"Host {scope.host}",
            verdict=" ".join(_describe_host(scope.host, verdict, runs, name_hours(chosen))),
            blocks=(*_plot_history(runs, verdict), *figures, runs),
            notes=(*chosen.notes, *_explain_hosts(chosen.hosts)),
            more=(Figure("host", scope.host),),
        )


def _alone(hosts: SlowHosts, verdict: HostVerdict) -> dict[str, Any]:
    """Return the fields of `SlowHosts` with one host."""
    return {name: getattr(hosts, name) for name in hosts.__slots__} | {"hosts": (verdict,)}


def _summarise_hosts(found: SlowHosts, unit: str) -> Iterator[str]:
    if not found.hosts:
        yield "No host can be compared: each run used one host, or its ranks were not recorded in detail."
        return
    slow = found.slow
    count = pluralise(len(found.hosts), "host")
    if slow:
        lost = sum(host.lost_rank_hours for host in slow)
        be = "is" if len(slow) == 1 else "are"
        yield f"{len(slow):,} of {count} {be} slow in job after job, and cost {format_hours(lost)} {unit}."
        first = slow[0]
        yield f"The most certain is {first.host}: {format_percent(first.slower)} slower than its peers."
    else:
        yield f"No slow host was found among {count}."


def _explain_hosts(found: SlowHosts) -> Iterator[str]:
    if found.hosts:
        yield (
            f"Hosts are compared with others of the same run that do the same work. Healthy hosts differ by "
            f"{found.usual_spread:.1%} (standard deviation). A host is called slow if it is slow with a probability of "
            f"90% or more, and at most {format_percent(found.false_share)} of those named are healthy."
        )


def _describe_host(name: str, verdict: HostVerdict | None, runs: Table, unit: str) -> Iterator[str]:
    if verdict is None:
        count = pluralise(len(runs.rows) + runs.left_out, "run")
        yield f"Host {name} cannot be compared with others: in its {count} there was no other host with the same work."
        return
    seen = f"{pluralise(verdict.runs, 'run')} of {pluralise(verdict.jobs, 'job')}"
    interval = format_interval(verdict.low, verdict.high)
    if verdict.is_slow:
        since = format_time(verdict.since or 0)[:_DAY]
        time = f"was slow from {since} to {format_time(verdict.until)[:_DAY]}" if verdict.until else "is slow"
        yield (
            f"Host {name} {time}: its ranks need {format_percent(verdict.slower)} more time than their peers "
            f"({interval}), seen in {seen}."
        )
        yield (
            f"It cost {format_hours(verdict.lost_rank_hours)} {unit}"
            f"{'' if verdict.until else f' since {since}'}, because all ranks of a run wait for it."
        )
        if not verdict.until:
            yield "Replace it or take it out of the pool; lostflops doctor --cluster shows what is wrong with it."
    else:
        yield f"Host {name} is not slow as far as is known: {_describe_effect(verdict)}, seen in {seen}."


def _describe_effect(verdict: HostVerdict) -> str:
    """Describe how a host differs that is not called slow."""
    if verdict.low <= 0 <= verdict.high:
        return f"its ranks differ from their peers by {format_interval(verdict.low, verdict.high)}, which may be zero"
    ends = sorted((abs(verdict.low), abs(verdict.high)))
    word = "more" if verdict.slower > 0 else "less"
    return (
        f"its ranks need {format_percent(abs(verdict.slower))} {word} time than their peers "
        f"({format_interval(*ends)}), as healthy hosts differ too"
    )


def _tabulate_hosts(found: SlowHosts) -> Table:
    fields = (
        Field("host"),
        Field("is_slow", label="slow"),
        Field("slower", "share", "slower than peers"),
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
            *(host.host, host.is_slow, host.slower, host.low, host.high, host.probability, host.jobs, host.runs),
            *(host.since, host.until, host.lost_rank_hours),
        )
        for host in found.hosts[:MOST_HOSTS]
    )
    title = "Hosts, most likely slow first" if len(rows) > 1 else "This host"
    return Table("hosts", title, fields, rows, left_out=len(found.hosts) - len(rows), most_shown=200)


def _tabulate_history(chosen: ChosenRuns) -> Table:
    found = chosen.connection.execute(_HISTORY, [chosen.scope.host]).fetchall()
    rows = tuple((*row, *_choose_loss(lines), address) for *row, lines, address in found[:MOST_RUNS])
    left_out = len(found) - len(rows)
    return Table("runs", "Runs on this host, newest first", _FIELDS, rows, left_out=left_out, most_shown=40)


def _choose_loss(lines: dict[str, int]) -> tuple[str | None, float | None]:
    """Return the line that takes most of the time that is not compute, and its share."""
    losses = {line: ns for line, ns in lines.items() if line != USEFUL and ns > 0}
    if not losses:
        return None, None
    worst = max(losses, key=lambda line: losses[line])
    return worst, losses[worst] / sum(lines.values())


def _plot_history(runs: Table, verdict: HostVerdict | None) -> Iterator[Plot]:
    series: dict[str, list[tuple[float, float]]] = {}
    for row in reversed(runs.to_json()):
        if row["slower"] is not None:
            series.setdefault(row["device"] or "CPU", []).append((row["start"], row["slower"]))
    if any(len(points) > 1 for points in series.values()):
        marks = [("slow since", verdict.since), ("slow until", verdict.until)] if verdict is not None else []
        yield Plot(
            name="history",
            title="Slower than peers, in each run",
            x=Field("start", "time", "started"),
            y=Field("slower", "share", "slower than peers"),
            series=tuple(Series(name, "marks", tuple(points)) for name, points in series.items()),
            log_x=False,
            log_y=False,
            marks=tuple(Mark(name, at) for name, at in marks if at),
        )
