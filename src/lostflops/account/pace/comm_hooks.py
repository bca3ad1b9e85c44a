"""Time inside communication hooks of DDP, from the timings of all steps, profiled or not.

It is the time of the call on the host. A callback that the hook chains to its future (`then`) runs when the collective
has ended, usually on another thread, and is not part of it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from lostflops.account.pace.timings import PACED, within
from lostflops.core.results import Field, Table
from lostflops.core.units import format_ns, format_share

if TYPE_CHECKING:
    from lostflops.store.run import Run

_MOST_SHOWN: Final = 20
_QUERY: Final = f"""
    with {PACED}
    select rank, count(comm_hook), median(comm_hook)::bigint, max(comm_hook), sum(comm_hook)::bigint,
           sum(comm_hook) / nullif(sum(own.ns), 0)
    from own join paced using (attempt, step)
    where settled and attempt = (select max(attempt) from timings where comm_hook is not null)
    group by rank having count(comm_hook) > 0 order by rank"""


def table(run: Run, ranks: Sequence[int] = ()) -> Table:
    """Return the time inside hooks by rank, in normal steps; no rows if none ran."""
    fields = (
        Field("rank"),
        Field("steps", "count"),
        Field("median_ns", "ns", "median of a step"),
        Field("longest_ns", "ns", "longest"),
        Field("ns", "ns", "sum", shown=False),
        Field("share", "share", "of the step"),
    )
    rows = tuple(tuple(row) for row in run.rows(_QUERY.format(within=within(ranks))))
    title = "Inside communication hooks of DDP, on the host" + (_names(run) if rows else "")
    return Table("comm_hooks", title, fields, rows, most_shown=_MOST_SHOWN)


def describe(hooks: Table) -> str:
    """Return the rank that is longest in its hooks, in words; empty if none ran."""
    rows: list[dict[str, Any]] = hooks.to_json()
    if not rows:
        return ""
    worst = max(rows, key=lambda row: row["median_ns"])
    return (
        f"Communication hooks of DDP take {format_ns(worst['median_ns'])} of a step on rank {worst['rank']} (median), "
        f"{format_share(worst['share'])} of its time."
    )


def _names(run: Run) -> str:
    """Return the names of the hooks, as DDP logs them."""
    found: set[str] = set()
    for (value,) in run.rows("select distinct value from job where key = 'ddp'"):
        logged = json.loads(value)
        for entry in logged if isinstance(logged, list) else ():
            name = entry.get("comm_hook") if isinstance(entry, dict) else None
            if isinstance(name, str) and name:
                found.add(name)
    return f" ({', '.join(sorted(found))})" if found else ""
