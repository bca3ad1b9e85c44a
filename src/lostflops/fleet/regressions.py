"""Jobs that became slower or faster from one run to another, with the commit.

Runs of the same name, ranks and device are a series, in the order of their starts. Its level may change from a run on;
a change is reported if chance alone would show one in at most 1 of 100 unchanged series of 40 runs, by asking after
each run. Slower and faster count apart. `change_points.py` states how. At least four runs before a change and two after
it are needed. What a slow host cost a run is taken out first, because it says nothing about the job.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from lostflops.fleet.change_points import (
    RUNS_AFTER,
    RUNS_BEFORE,
    Break,
    compute_student_deviate,
    find_breaks,
    weigh_runs,
)
from lostflops.fleet.robust import Floats, Ints
from lostflops.fleet.step_noise import FLOOR, OWN_NOISE, StepNoise, fit_step_noise
from lostflops.fleet.step_times import SeriesOfSteps, StepTime, list_series

_DEVIATE: Final = 1.645
"""Of a 90% interval."""
_NEAR: Final = 3
"""A change may be so many runs before or after the one that was seen first."""
_NEW_COMMIT: Final = 2.0
"""By how much likelier a change is at a run with a new commit, as a logarithm."""


class JobStatus(StrEnum):
    """What the runs of a job show of its step time."""

    SLOWER = "slower"
    """Slower than before its newest change."""
    FASTER = "faster"
    UNCHANGED = "unchanged"
    UNKNOWN = "unknown"
    """It has too few runs with a step time, and no change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceLevel:
    """The step time of runs between two changes."""

    runs: int
    step_ns: float
    error: float
    """Standard error, as a part of it."""
    freedom: float
    """Degrees of freedom of the error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceChange:
    """A job that is slower or faster from a run on."""

    run: str
    """First run after the change."""
    run_before: str
    start: int
    """Unix time of the first run after the change, in ns."""
    seen: str
    """The run after which the change was certain."""
    runs_until_seen: int
    """Runs after the change that it took to be certain."""
    commit: str | None
    commit_before: str | None
    slower: float
    """By how much the step is longer than before: 0.03 is 3%, and less than 0 is faster."""
    low: float
    high: float
    """Range of `slower`."""
    before: PaceLevel
    after: PaceLevel

    @property
    def is_slower(self) -> bool:
        """Return whether it is a regression, not an improvement."""
        return self.slower > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHistory:
    """The pace of one job over its runs."""

    job: str
    ranks: int
    device: str | None
    runs: int
    noise: float
    """Standard deviation between runs without a change, as a part of the step."""
    now: PaceLevel
    """Runs since the last change."""
    changes: tuple[PaceChange, ...]
    """Newest first."""
    slower: float
    """By how much the step is longer now than before the last change; 0 without a change."""
    slower_than_best: float
    """By how much it is longer now than at its best level."""

    @property
    def status(self) -> JobStatus:
        """Return what its runs show."""
        if self.changes:
            return JobStatus.SLOWER if self.changes[0].is_slower else JobStatus.FASTER
        return JobStatus.UNCHANGED if self.runs >= RUNS_BEFORE + RUNS_AFTER else JobStatus.UNKNOWN


class _SeriesTable(NamedTuple):
    """Some series as rows, and how many values of each are valid."""

    places: list[int]
    """Of each row among all series."""
    values: Floats
    errors: Floats
    lengths: Ints


def find_regressions(times: Iterable[StepTime]) -> tuple[JobHistory, ...]:
    """Find changes of all jobs: first those that are slower now than before, by how much, then the others."""
    series = list_series(times)
    if not series:
        return ()
    long = [one for one in series if len(one.runs) >= RUNS_BEFORE + RUNS_AFTER]
    breaks, noise = _find_all_breaks(long) if long else ([], OWN_NOISE)
    found = {id(one): own for one, own in zip(long, breaks, strict=True)}
    paces = [_report_job(one, found.get(id(one), []), noise) for one in series]
    return tuple(sorted(paces, key=lambda pace: (-pace.slower, -pace.slower_than_best, pace.job, pace.ranks)))


def _find_all_breaks(series: Sequence[SeriesOfSteps]) -> tuple[list[list[Break]], StepNoise]:
    """Find the changes of series that are long enough, and their noise."""
    tables = _tabulate_by_length(series)
    calm = []
    for table in tables:
        breaks = find_breaks(table.values, table.errors, table.lengths, OWN_NOISE)
        calm.append((_remove_breaks(table, breaks), table.lengths))
    noise = fit_step_noise(calm)
    found: dict[int, list[Break]] = {}
    for table in tables:
        found.update(zip(table.places, find_breaks(table.values, table.errors, table.lengths, noise), strict=True))
    return [found[place] for place in range(len(series))], noise


def _tabulate_by_length(series: Sequence[SeriesOfSteps]) -> list[_SeriesTable]:
    """Make tables of series of similar length: in one table, each would take the memory and time of the longest."""
    places: dict[int, list[int]] = {}
    for place, one in enumerate(series):
        places.setdefault(len(one.runs).bit_length(), []).append(place)
    return [_tabulate_series(series, some) for some in places.values()]


def _tabulate_series(series: Sequence[SeriesOfSteps], places: list[int]) -> _SeriesTable:
    values, errors = (_pad([getattr(series[place], name) for place in places]) for name in ("values", "errors"))
    return _SeriesTable(places, values, errors, np.array([len(series[place].runs) for place in places]))


def _pad(rows: Sequence[Floats]) -> Floats:
    """Make rows equally long by repeating their last value."""
    longest = max(len(row) for row in rows)
    return np.stack([np.pad(row, (0, longest - len(row)), mode="edge") for row in rows])


def _remove_breaks(table: _SeriesTable, breaks: Sequence[Sequence[Break]]) -> Floats:
    """Subtract the median of each level, so that what is left is noise."""
    values = table.values.copy()
    for row, found in enumerate(breaks):
        for first, stop in pairwise([0, *(change.first for change in found), table.lengths[row]]):
            values[row, first:stop] -= np.median(values[row, first:stop])
    return values


def _report_job(series: SeriesOfSteps, breaks: list[Break], noise: StepNoise) -> JobHistory:
    """Report one job, whose level changes here."""
    breaks = _place_breaks(series, breaks)
    parts = [
        _weigh_part(series, *edges) for edges in pairwise([0, *(found.first for found in breaks), len(series.runs)])
    ]
    spread, freedom = _measure_spread(parts, noise)
    levels = [_measure_level(*part, spread, freedom, noise.correlation) for part in parts]
    changes = [
        _report_change(series, found, before, after)
        for found, before, after in zip(breaks, levels[:-1], levels[1:], strict=True)
    ]
    best = min(level.step_ns for level in levels)
    first = series.runs[0]
    return JobHistory(
        job=first.job,
        ranks=first.ranks,
        device=first.device,
        runs=len(series.runs),
        noise=spread,
        now=levels[-1],
        changes=tuple(reversed(changes)),
        slower=changes[-1].slower if changes else 0.0,
        slower_than_best=levels[-1].step_ns / best - 1,
    )


def _place_breaks(series: SeriesOfSteps, breaks: list[Break]) -> list[Break]:
    """Place each change where all runs around it, and new commits, make it most likely."""
    placed: list[Break] = []
    for number, found in enumerate(breaks):
        start = placed[-1].first if placed else 0
        stop = breaks[number + 1].first if number + 1 < len(breaks) else len(series.runs)
        low = max(found.first - _NEAR, start + RUNS_BEFORE)
        high = min(found.first + _NEAR, stop - RUNS_AFTER, found.seen)
        placed.append(Break(_place_break(series, start, stop, range(low, high + 1), found.first), found.seen))
    return placed


def _place_break(series: SeriesOfSteps, start: int, stop: int, candidates: Iterable[int], seen: int) -> int:
    """Choose the likeliest of the candidates for one change between two others."""
    values, weights = _weigh_part(series, start, stop)
    scores = {}
    for first in candidates:
        cost = sum(
            _sum_squares(values[side], weights[side]) for side in (slice(first - start), slice(first - start, None))
        )
        is_new = series.runs[first].commit != series.runs[first - 1].commit
        scores[first] = -len(values) / 2 * np.log(cost + FLOOR**2) + _NEW_COMMIT * is_new
    return max(scores, key=lambda first: (scores[first], -abs(first - seen)), default=seen)


def _sum_squares(values: Floats, weights: Floats) -> float:
    """Sum weighted squares of distances from the weighted mean."""
    mean = weights @ values / weights.sum()
    return float(weights @ (values - mean) ** 2)


def _weigh_part(series: SeriesOfSteps, first: int, stop: int) -> tuple[Floats, Floats]:
    """Return the values of some runs, and their weights."""
    values = series.values[first:stop]
    return values, weigh_runs(values[None, :], series.errors[None, first:stop])[0]


def _measure_spread(parts: list[tuple[Floats, Floats]], noise: StepNoise) -> tuple[float, float]:
    """Measure the noise within levels; return its standard deviation and its degrees of freedom."""
    squares = noise.runs * noise.spread**2 + sum(_sum_squares(*part) for part in parts)
    freedom = max(noise.runs + sum(float(weights.sum()) - 1 for _, weights in parts), 1.0)
    return max(float(np.sqrt(squares / freedom)), FLOOR), freedom


def _measure_level(values: Floats, weights: Floats, spread: float, freedom: float, correlation: float) -> PaceLevel:
    """Measure the level of some runs."""
    inflation = (1 + correlation) / (1 - correlation)
    return PaceLevel(
        runs=len(values),
        step_ns=float(np.exp(weights @ values / weights.sum())),
        error=spread * float(np.sqrt(inflation / weights.sum())),
        freedom=freedom,
    )


def _report_change(series: SeriesOfSteps, found: Break, before: PaceLevel, after: PaceLevel) -> PaceChange:
    """Report one change."""
    first, last = series.runs[found.first], series.runs[found.first - 1]
    rise = float(np.log(after.step_ns / before.step_ns))
    margin = compute_student_deviate(_DEVIATE, before.freedom) * float(np.hypot(before.error, after.error))
    return PaceChange(
        run=first.run,
        run_before=last.run,
        start=first.start,
        seen=series.runs[found.seen].run,
        runs_until_seen=found.seen - found.first + 1,
        commit=first.commit,
        commit_before=last.commit,
        slower=float(np.expm1(rise)),
        low=float(np.expm1(rise - margin)),
        high=float(np.expm1(rise + margin)),
        before=before,
        after=after,
    )
