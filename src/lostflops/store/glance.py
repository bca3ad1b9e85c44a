"""What is in a run, at a glance: for a notebook in which one is the last value of a cell. It analyses nothing."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

import duckdb

from lostflops.errors import QueryError
from lostflops.results import Pair, Pairs, Result
from lostflops.units import counted

if TYPE_CHECKING:
    from lostflops.store.run import Run

HOW_TO_ASK: Final = "To analyse it here: from lostflops.analyze.report import report, then report(run)."
CLOSED: Final = "It is closed: open it again to query it."
_STEPS: Final = """
    select count(*), min(step), max(step) from (select step from steps union select step from timings)"""
_CLUSTER: Final = (
    "select max(world_size), nullif(count(distinct host), 0), string_agg(distinct device, ', ') from ranks"
)


def glance(run: Run) -> Result:
    sources = run.manifest.sources
    formats = ", ".join(sorted({source.format for source in sources}))
    events = sum(source.events for source in sources)
    ranks = counted(len(run.ranks), "rank")
    try:
        [(steps, first, last)] = run.sql(_STEPS).fetchall()
        [(world, hosts, devices)] = run.sql(_CLUSTER).fetchall()
    except (duckdb.Error, QueryError):
        return Result("run", f"Run {run.path.name}", f"{ranks}, {counted(events, 'event')}. {CLOSED}")
    held = Pairs(
        "held",
        "",
        (
            Pair("world_size", world, "count", "Ranks in the job"),
            Pair("hosts", hosts, "count", "Hosts"),
            Pair("devices", devices, "", "Devices"),
            Pair("formats", formats, "", "Formats"),
            Pair("first_step", first, "", "First step"),
            Pair("last_step", last, "", "Last step"),
        ),
    )
    verdict = f"{ranks}, {counted(steps, 'step')}, {counted(events, 'event')}."
    command = f"lostflops open {shlex.quote(_near(run))}"
    return Result("run", f"Run {run.path.name}", verdict, (held,), (HOW_TO_ASK,), command)


def _near(run: Run) -> str:
    """As seen from here, where that is shorter."""
    here = Path.cwd()
    is_below = run.path.is_relative_to(here) and run.address == str(run.path)
    return str(run.path.relative_to(here)) if is_below else run.address
