"""One run as its row in a fleet shows it; its own page shows more."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from lostflops.core.errors import UsageError
from lostflops.core.results import Field, Figure, Result, Table
from lostflops.core.units import format_ns, format_percent, format_time, pluralise
from lostflops.fleet.answer import COLUMNS, format_hours, list_losses, name_hours
from lostflops.fleet.choose import CHOSEN, FleetScope, choose
from lostflops.fleet.hours import NS_PER_HOUR, USEFUL, read_hours, tabulate_hours

if TYPE_CHECKING:
    from lostflops.fleet.place import Fleet

_MINUTE: Final = len("2026-01-31 10:00")
_COLUMNS: Final = ("name", "address", "start", "ranks", "device", "step_ns", "mfu", "commit", "findings")
_FACTS: Final = f"select {', '.join(_COLUMNS)} from {CHOSEN}"


def find_address(fleet: Fleet, run: str = "", *, key: str = "") -> str | None:
    """Return where a run is, by its identity or by the beginning of its SHA-256; None if the fleet has no such run."""
    condition = "starts_with(sha256(run), ?)" if key else "run = ?"
    with fleet.table(("run", "address")) as connection:
        found = connection.execute(f"select address from runs where {condition}", [key or run]).fetchone()
    return None if found is None else str(found[0])


def answer_run(fleet: Fleet, run: str) -> Result:
    """Return what the row of a run shows."""
    if find_address(fleet, run) is None:
        raise UsageError("this run is not in the fleet: it may have been removed, or added again after more was read")
    with choose(fleet, FleetScope(run=run), COLUMNS) as chosen:
        values = chosen.connection.execute(_FACTS).fetchall()[0]
        row = dict(zip(_COLUMNS, values, strict=True))
        hours, unit = read_hours(chosen.connection), name_hours(chosen)
        return Result(
            name="fleet_run",
            title=f"Run {run}",
            verdict=" ".join((_describe_run(row), *_describe_use(hours, unit, row["step_ns"], row["mfu"]))),
            blocks=(*_tabulate_findings(row["findings"]), tabulate_hours(chosen.connection)),
            notes=tuple(chosen.notes),
            next_command=f"lostflops serve {shlex.quote(row['address'])}",
            more=(Figure("run", run), Figure("job", row["name"]), Figure("address", row["address"])),
        )


def _describe_run(row: dict[str, Any]) -> str:
    where = f"{pluralise(row['ranks'], 'rank')} of {row['device'] or 'CPU'}"
    commit = f" at commit {row['commit']}" if row["commit"] else ""
    return f"This run of job {row['name']} started on {format_time(row['start'])[:_MINUTE]} on {where}{commit}."


def _describe_use(hours: dict[str, float], unit: str, step_ns: float | None, mfu: float | None) -> Iterator[str]:
    whole = sum(hours.values())
    useful = f": {format_percent(hours[USEFUL] / whole)} is compute" if hours.get(USEFUL) else ""
    losses = [f"{line} ({format_percent(share)})" for line, share in list_losses(hours)[:1]]
    largest = f"; the largest loss is {losses[0]}" if losses else ""
    yield f"It used {format_hours(whole / NS_PER_HOUR)} {unit}{useful}{largest}."
    if step_ns:
        yield f"A step took {format_ns(round(step_ns))}{f' at {format_percent(mfu)} MFU' if mfu is not None else ''}."


def _tabulate_findings(findings: list[dict[str, Any]]) -> Iterator[Table]:
    fields = (
        Field("cause"),
        Field("level"),
        Field("gain", "share", "saves of the step"),
        Field("gain_low", "share", "from"),
        Field("gain_high", "share", "to"),
        Field("what"),
        Field("fix"),
    )
    rows = tuple(tuple(finding[field.name] for field in fields) for finding in findings)
    if rows:
        yield Table("findings", "Findings", fields, rows)
