"""Two jobs of a fleet beside each other: where the hours of each go, and how fast their steps are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from lostflops.core.results import Field, Result, Table
from lostflops.core.units import format_ns, format_percent
from lostflops.fleet.answer import COLUMNS, name_hours
from lostflops.fleet.choose import FleetScope, Judgements, choose
from lostflops.fleet.hours import USEFUL, describe_line, read_hours
from lostflops.fleet.jobs import tabulate_fixes, tabulate_jobs

if TYPE_CHECKING:
    from lostflops.fleet.place import Fleet

_EQUAL: Final = 1.005
"""Steps that differ by less than this factor are called equally long."""
_SMALL: Final = 0.005
"""Shares of hours that differ by less than this are called equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFigures:
    """What the runs of one job show."""

    job: str
    rows: list[dict[str, Any]]
    """A row for each number of ranks and device, the largest first."""
    hours: dict[str, float]
    """Time by cause in ns."""
    unit: str
    fixes: Table
    notes: tuple[str, ...]

    @property
    def whole(self) -> float:
        """Return the time of all ranks in ns."""
        return sum(self.hours.values())

    @property
    def shares(self) -> dict[str, float]:
        """Return the parts of the whole time by cause."""
        return {line: ns / self.whole for line, ns in self.hours.items()} if self.whole else {}


def compare_jobs(fleet: Fleet, scope: FleetScope, other: str, judged: Judgements | None = None) -> Result:
    """Return the job that a scope names beside another of the same labels and days."""
    first = _read_job(fleet, scope, judged)
    second = _read_job(fleet, replace(scope, job=other), judged)
    return Result(
        name="fleet_jobs_compared",
        title=f"{first.job} and {second.job}",
        verdict=" ".join(_sentences(first, second)),
        blocks=(_tabulate_facts(first, second), _tabulate_shares(first, second), *_tabulate_fixes(first, second)),
        notes=(*dict.fromkeys((*first.notes, *second.notes)), *_doubts(first, second)),
    )


def _read_job(fleet: Fleet, scope: FleetScope, judged: Judgements | None) -> JobFigures:
    with choose(fleet, scope, COLUMNS, judged) as chosen:
        return JobFigures(
            job=scope.job,
            rows=tabulate_jobs(chosen.connection, chosen.histories).to_json(),
            hours=read_hours(chosen.connection),
            unit=name_hours(chosen),
            fixes=tabulate_fixes(chosen.connection),
            notes=tuple(chosen.notes),
        )


def _sentences(first: JobFigures, second: JobFigures) -> Iterator[str]:
    steps = [figures.rows[0]["step_ns"] for figures in (first, second)]
    if all(steps):
        slow, fast = (first, second) if steps[0] >= steps[1] else (second, first)
        times = max(steps) / min(steps)
        length = f"{times:.2f}x as long as a step of {fast.job}" if times >= _EQUAL else f"as long as one of {fast.job}"
        yield f"A step of {slow.job} takes {length} ({format_ns(max(steps))} and {format_ns(min(steps))})."
    parts = [figures.shares for figures in (first, second)]
    if all(part.get(USEFUL) for part in parts):
        useful = [format_percent(part[USEFUL]) for part in parts]
        yield f"{useful[0]} of the hours of {first.job} are compute, and {useful[1]} of those of {second.job}."
    largest = max(
        (line for line in {*parts[0], *parts[1]} if line != USEFUL),
        key=lambda line: (abs(parts[0].get(line, 0.0) - parts[1].get(line, 0.0)), line),
        default=None,
    )
    if largest is not None:
        shares = [part.get(largest, 0.0) for part in parts]
        if abs(shares[0] - shares[1]) >= _SMALL:
            yield (
                f"They differ most in {largest}: {format_percent(shares[0])} of the hours of {first.job}, "
                f"{format_percent(shares[1])} of {second.job}."
            )
        else:
            yield f"Their hours go to the same causes, within {format_percent(_SMALL)}."


def _tabulate_facts(first: JobFigures, second: JobFigures) -> Table:
    """Return a row for each job with each number of ranks and device."""
    names = ("ranks", "device", "runs", "hours", "training", "step_ns", "mfu", "status", "slower")
    fields = (
        Field("job"),
        Field("ranks", "count"),
        Field("device"),
        Field("runs", "count"),
        Field("hours", "rate"),
        Field("training", "share", "in steps"),
        Field("step_ns", "ns", "step"),
        Field("mfu", "share", "MFU"),
        Field("status", label="step time"),
        Field("slower", "share"),
    )
    rows = tuple((job.job, *(row[name] for name in names)) for job in (first, second) for row in job.rows)
    return Table("jobs", "Newest figures", fields, rows)


def _tabulate_shares(first: JobFigures, second: JobFigures) -> Table:
    """Return the shares of hours by cause, the largest difference first."""
    parts = [job.shares for job in (first, second)]
    lines = {*parts[0], *parts[1]}
    pairs = [(line, parts[0].get(line, 0.0), parts[1].get(line, 0.0)) for line in lines]
    pairs.sort(key=lambda pair: (-abs(pair[1] - pair[2]), pair[0]))
    rows = tuple((line, share, other, share - other, describe_line(line)) for line, share, other in pairs)
    fields = (
        Field("cause"),
        Field("first", "share", first.job, has_bars=True),
        Field("second", "share", second.job, has_bars=True),
        Field("difference", "share"),
        Field("what"),
    )
    return Table("hours", "Where the hours went", fields, rows)


def _tabulate_fixes(first: JobFigures, second: JobFigures) -> Iterator[Table]:
    rows = (*first.fixes.rows, *second.fixes.rows)
    if rows:
        yield replace(first.fixes, rows=rows)


def _doubts(first: JobFigures, second: JobFigures) -> Iterator[str]:
    sizes = [{(row["ranks"], row["device"]) for row in job.rows} for job in (first, second)]
    if sizes[0] != sizes[1]:
        yield "The jobs ran on other ranks or devices, or do other work: a longer step is not a slower program."
    else:
        yield "A step may do other work in each job: a longer step is not a slower program."
    if first.unit != second.unit:
        yield "Hours are those of all ranks; some ranks have no GPU."
