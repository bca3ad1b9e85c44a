"""Step times of runs by job, in the order of their starts: the series that regressions are found in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

import duckdb
import numpy as np

from lostflops.fleet.robust import Floats
from lostflops.fleet.summary import RunSummary

WAITING: Final = ("comm.transfer", "comm.wait", "comm.bubble")
"""Lines of the ledger that are not a rank's own work."""
HELD_UP: Final = 0.025
"""A host must be slower than the others by this part, and by four times its error, to count as holding up its run."""
_ERRORS: Final = 4
_IMPOSSIBLE: Final = 1e3
"""An error of a thousand steps is a mistake of whoever wrote it, and unknown."""
_QUERY: Final = """
    select name, ranks, device, run, start, step_ns, step_error, commit,
        coalesce(list_max(list_transform(
            list_filter(hosts, lambda host: host.slower > {held_up} and host.slower > {errors} * host.slower_error),
            lambda host: host.slower)), 0) as slowest,
        1 - ({waiting}) / greatest(window_ns, 1) as own
    from {relation} where step_ns > 0"""


class StepTime(NamedTuple):
    """The step time of one run."""

    job: str
    ranks: int
    device: str | None
    run: str
    start: int
    """Unix time in ns."""
    step_ns: float
    step_error: float | None
    """Standard error of `step_ns`, as a part of it."""
    commit: str | None
    held_up: float = 0.0
    """Part of the step that a slow host cost: it says nothing about the job."""


@dataclass(frozen=True, slots=True)
class SeriesOfSteps:
    """Runs of one job on equal ranks and devices, in the order of their starts."""

    runs: Sequence[StepTime]
    values: Floats
    """Logarithms of step times without what slow hosts cost."""
    errors: Floats


def read_step_times(summaries: Iterable[RunSummary]) -> list[StepTime]:
    """Read the step times of summaries."""
    return [
        StepTime(
            run.name, run.ranks, run.device, run.run, run.start, run.step_ns, run.step_error, run.commit, _hold_up(run)
        )
        for run in summaries
        if run.step_ns is not None and run.step_ns > 0
    ]


def query_step_times(connection: duckdb.DuckDBPyConnection, relation: str) -> list[StepTime]:
    """Read the step times of a relation with the columns of `RunSummary`."""
    waiting = " + ".join(f"coalesce(lines['{line}'], 0)" for line in WAITING)
    query = _QUERY.format(relation=relation, waiting=waiting, held_up=HELD_UP, errors=_ERRORS)
    rows = connection.sql(query).fetchall()
    return [StepTime._make((*row[:8], row[8] * min(max(row[9], 0), 1))) for row in rows]


def list_series(times: Iterable[StepTime]) -> list[SeriesOfSteps]:
    """List the series of all jobs by name; runs that start at the same time are in the order of their names."""
    ordered = sorted(times, key=lambda time: (time.job, time.ranks, time.device or "", time.start, time.run))
    groups = groupby(ordered, key=lambda time: (time.job, time.ranks, time.device))
    return [_make_series(list(runs)) for _, runs in groups]


def _hold_up(run: RunSummary) -> float:
    """Compute which part of the step the slowest host costs: all others wait for its own work."""
    slower = [
        host.slower
        for host in run.hosts
        if host.slower is not None
        and host.slower > HELD_UP
        and (host.slower_error is not None and host.slower > _ERRORS * host.slower_error)
    ]
    waiting = sum(run.lines.get(line, 0) for line in WAITING)
    own = 1 - waiting / max(run.window_ns, 1)
    return max(slower, default=0.0) * own


def _make_series(runs: list[StepTime]) -> SeriesOfSteps:
    """Make a series; errors that are unknown are the median of the others, which are 0 if no error is known."""
    errors = np.array([np.nan if run.step_error is None else run.step_error for run in runs], float)
    errors = np.where((errors >= 0) & (errors < _IMPOSSIBLE), errors, np.nan)
    known = errors[np.isfinite(errors)]
    held_up = np.clip([run.held_up for run in runs], 0, 0.9)
    values = np.log([run.step_ns for run in runs]) + np.log1p(-held_up)
    return SeriesOfSteps(runs, values, np.where(np.isfinite(errors), errors, np.median(known) if known.size else 0.0))
