"""Where the hours of many runs went: by cause, and by what the runs have in common.

The lines of a job's life are known for all its time. What is lost inside its steps is known for the profiled steps
alone: their shares are those of all training time. So all hours are on exactly one line. Profiled steps take longer
than normal ones, and which lines that lengthens is unknown. Each may hold all of the difference or nothing of it,
which gives a line its range; where no step was timed without the profiler, the range is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from lostflops.account.job.life import LIFE, TRAINING
from lostflops.account.ledger.lines import DEFINITIONS
from lostflops.core.errors import UsageError
from lostflops.core.results import Field, Table

if TYPE_CHECKING:
    import duckdb

NS_PER_HOUR: Final = 3_600e9
NOT_DETAILED: Final = "training"
"""Time in steps of runs without a step that was recorded in detail."""
USEFUL: Final = "compute"
UNLABELLED: Final = "(no label)"

PARTS: Final = f"""
    lived as (
        select *, coalesce(map_extract_value(life, '{TRAINING}'), 0)::double as training,
               if(normal_ns > 0, least(normal_ns, window_ns), null) as normal
        from chosen
    ),
    parts as (
        select runs.run, entry.key as line, entry.value::double as ns, ns as low, ns as high
        from lived runs, unnest(map_entries(life)) as t(entry) where entry.key <> '{TRAINING}'
        union all
        select runs.run, entry.key, runs.training * (entry.value / runs.window_ns),
               runs.training * (greatest(entry.value - (runs.window_ns - runs.normal), 0) / runs.normal),
               runs.training * (least(entry.value, runs.normal) / runs.normal)
        from lived runs, unnest(map_entries(lines)) as t(entry) where runs.window_ns > 0
        union all
        select run, '{NOT_DETAILED}', training, training, training from lived where window_ns = 0 and training > 0
    )"""
"""SQL of the hours of each run by cause, in ns, with the range that the profiler leaves."""

_HOURS: Final = f"""
    with {PARTS}
    select line, sum(ns) as ns, if(count(low) = count(*), sum(low), null), if(count(high) = count(*), sum(high), null)
    from parts group by line order by ns desc, line"""
GROUPS: Final = {
    "cause": "",
    "job": "name",
    "device": "coalesce(device, 'CPU')",
    "week": "strftime(date_trunc('week', make_timestamp(start // 1000)), '%Y-%m-%d')",
    "host": "",
}
"""Words after `--by` that are not labels, and the SQL that groups runs by them."""
_BY: Final = """
    with {parts},
    grouped as (select run, {key} as name from chosen),
    summed as (
        select name, count(distinct run) as runs, sum(ns) as ns, sum(ns) filter (line = '{useful}') as useful,
               sum(ns) filter (line in ({lost})) as lost
        from parts join grouped using (run) group by name
    ),
    largest as (
        select name, arg_max(line, ns) as line, max(ns) as ns from (
            select name, line, sum(ns) as ns from parts join grouped using (run)
            where line not in ('{useful}', '{training}') group by name, line
        ) group by name
    )
    select summed.name, runs, summed.ns, useful, lost, largest.line, largest.ns
    from summed left join largest using (name) order by summed.ns desc, name"""
_HOSTS: Final = f"""
    with lived as (
        select run, hosts, coalesce(map_extract_value(life, '{TRAINING}'), 0)::double / nullif(ranks, 0) as of_rank
        from chosen
    ),
    each as (select run, of_rank, unnest(hosts) as part from lived),
    split as (
        select run, coalesce(part.host, '?') as name, entry.key as line,
               entry.value / nullif(part.window_ns, 0) * part.ranks * of_rank as ns
        from each, unnest(map_entries(part.lines)) as t(entry)
    ),
    largest as (
        select name, arg_max(line, ns) as line, max(ns) as ns
        from (select name, line, sum(ns) as ns from split where line <> '{USEFUL}' group by name, line) group by name
    )
    select name, count(distinct run), sum(split.ns) as whole, sum(split.ns) filter (split.line = '{USEFUL}'), 0,
           any_value(largest.line), any_value(largest.ns)
    from split left join largest using (name) group by name order by whole desc, name"""
_LOST: Final = tuple(line for line in LIFE if line != TRAINING)


def read_hours(fleet: duckdb.DuckDBPyConnection) -> dict[str, float]:
    """Return the time of all runs by cause in ns, the largest first. It sums to the whole time of all ranks."""
    return {line: float(ns) for line, ns, _, _ in fleet.execute(_HOURS).fetchall()}


def tabulate_hours(fleet: duckdb.DuckDBPyConnection) -> Table:
    found = fleet.execute(_HOURS).fetchall()
    whole = sum(ns for _, ns, _, _ in found) or 1.0
    rows = tuple(
        (line, *(end if end is None else end / NS_PER_HOUR for end in ends), ends[0] / whole, describe_line(line))
        for line, *ends in found
    )
    fields = (
        Field("cause"),
        Field("hours", "rate"),
        Field("low", "rate", "from"),
        Field("high", "rate", "to"),
        Field("share", "share", has_bars=True),
        Field("what"),
    )
    return Table("hours", "Where the hours went", fields, rows, most_shown=12)


def describe_line(line: str) -> str:
    if line == NOT_DETAILED:
        return "in steps; no step was recorded in detail"
    return DEFINITIONS.get(line) or LIFE.get(line, "")


def tabulate_groups(fleet: duckdb.DuckDBPyConnection, by: str, labels: Sequence[str]) -> Table:
    """Return the hours of runs by what they have in common: a word of `GROUPS`, or the name of a label."""
    query = _HOSTS if by == "host" else _fill(_key(by, labels))
    fields = (
        Field("name", label=by),
        Field("runs", "count"),
        Field("hours", "rate"),
        Field("compute", "share"),
        Field("outside_steps", "share", "outside steps", shown=by != "host"),
        Field("largest_loss", label="largest loss"),
        Field("largest_loss_share", "share", "its share"),
    )
    made = tuple(
        (
            *(name, runs, ns / NS_PER_HOUR, None if useful is None else useful / ns, (lost or 0) / ns),
            *(line, None if most is None else most / ns),
        )
        for name, runs, ns, useful, lost, line, most in fleet.execute(query).fetchall()
        if ns
    )
    return Table("groups", f"By {by}", fields, made, most_shown=20)


def _key(by: str, labels: Sequence[str]) -> str:
    if GROUPS.get(by):
        return GROUPS[by]
    if by not in labels:
        known = dict.fromkeys((*GROUPS, *labels))
        raise UsageError(f"--by {by}: no run has a label of this name. Known: {', '.join(known)}")
    quoted = by.replace("'", "''")
    return f"coalesce(map_extract_value(labels, '{quoted}'), '{UNLABELLED}')"


def _fill(key: str) -> str:
    lost = ", ".join(f"'{line}'" for line in _LOST)
    return _BY.format(parts=PARTS, key=key, useful=USEFUL, training=NOT_DETAILED, lost=lost)
