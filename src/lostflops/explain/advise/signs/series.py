"""Step times that the collector recorded, by step and rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from lostflops.account.pace.timings import PACED, within
from lostflops.core.stats import trend
from lostflops.explain.advise.claim import NotChecked

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case
    from lostflops.store.run import Run

Values = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]

MORE: Final = 1.1
"""Steps grow if the last third of them takes at least this many times the time of the first third."""
STEADY: Final = 0.5
"""Steps grow steadily if Kendall's tau of time and step is at least this. Steps that are slow now and then stay far
below."""
SAME_WORK: Final = 0.02
"""Steps do the same work if it differs by at most this part."""
_GROWS: Final = 0.7
"""A phase is the cause if it has at least this part of the step's growth."""
_AT_FIRST: Final = 0.5
"""The phase must take less than this part of the first steps: a phase that is most of the step has most of any
growth."""
_PARTLY: Final = 0.25
"""This part of the step's growth is enough if the phase also doubles, and the backward pass has the rest of the
growth."""
_TWICE: Final = 2.0
"""Doubling means that the phase takes at least this many times its time at first: a device that slows down stretches no
phase that much."""
_NEARLY_ALL: Final = 0.9
_OWN_PHASES: Final = ("data", "forward", "optimizer", "outside")
"""Phases in which no rank waits for others."""
_MOST_RANKS: Final = 64
"""If there are more ranks, this many are read, evenly spread from first to last: what all ranks do shows in these."""
_STEPS: Final = f"""
    with {PACED}
    select step, ns, settled, compiled, profiled and is_regular as profiled, is_first from paced order by step"""


@dataclass(frozen=True, slots=True)
class StepSeries:
    """Steps of the attempt whose pace is known, in order."""

    run: Run
    attempt: int
    ranks: tuple[int, ...]
    step: npt.NDArray[np.int64]
    ns: Values
    """Time of each step: the median of its ranks."""
    settled: Flags
    """Normal steps: see `account/pace/timings.py`."""
    compiled: Flags
    profiled: Flags
    """Profiled steps that are otherwise normal."""
    first: Flags

    def column(self, expression: str) -> Values:
        """Return an expression on table `timings`, by step and rank; NaN if not recorded."""
        found = self.run.columns(
            f"""select rank, step, ({expression})::double as value from timings
                where {within(self.ranks, self.attempt)} and ({expression}) is not null"""
        )
        values = np.full((self.step.size, len(self.ranks)), np.nan)
        rows = np.searchsorted(self.step, np.asarray(found["step"]))
        values[rows, np.searchsorted(self.ranks, np.asarray(found["rank"]))] = np.asarray(found["value"])
        return values


def series(case: Case) -> StepSeries:
    """Return the timed steps; raise `NotChecked` if no step was timed."""
    if case.timed_steps is None:
        raise NotChecked("step times were not recorded", "--steps auto")
    run, attempt = case.run, case.timed_steps.pace.attempt
    timed = [rank for (rank,) in run.rows(f"select distinct rank from timings where attempt = {attempt} order by 1")]
    places = np.unique(np.linspace(0, len(timed) - 1, min(len(timed), _MOST_RANKS)).round().astype(int))
    ranks = tuple(timed[place] for place in places)
    found = run.columns(_STEPS.format(within=within(ranks, attempt)))
    step, ns = np.asarray(found["step"], np.int64), np.asarray(found["ns"], np.float64)
    flags = (np.asarray(found[name], np.bool_) for name in ("settled", "compiled", "profiled", "is_first"))
    return StepSeries(run, attempt, ranks, step, ns, *flags)


def measure_growth(values: Values) -> tuple[float, float]:
    """Return the ratio of the last third to the first, by medians, and Kendall's tau.

    >>> measure_growth(np.arange(1.0, 10.0))
    (4.0, 1.0)
    """
    first, last = _thirds(values)
    return last / max(first, 1.0), trend(values)[0]


def _thirds(values: Values) -> tuple[float, float]:
    third = values.size // 3
    return float(np.median(values[:third])), float(np.median(values[-third:]))


def does_more(timed: StepSeries, rows: Rows) -> bool:
    """Return whether later steps have more tokens or samples, which would explain that they take longer."""
    for unit in ("tokens", "samples"):
        counted = timed.column(unit)[rows].sum(axis=1)
        if np.isfinite(counted).all() and measure_growth(counted)[0] > 1 + SAME_WORK:
            return True
    return False


def growing_phase(timed: StepSeries, rows: Rows) -> str:
    """Return the phase that makes steps longer and longer on nearly all ranks; empty if no phase does, or all do alike,
    as on a device that slows down."""
    whole, steady = measure_growth(timed.ns[rows])
    if whole < MORE or steady < STEADY:
        return ""
    backward = _growth(timed.column("backward")[rows])
    for phase in _OWN_PHASES:
        values = timed.column(phase)[rows]
        # Inputs that get larger stretch the forward pass and the backward pass: that is more work, not growth.
        rest = np.zeros_like(backward) if phase == "forward" else backward
        if np.isfinite(values).all() and _is_cause(values, rest, timed.ns[rows]).mean() >= _NEARLY_ALL:
            return phase
    return ""


def _is_cause(values: Values, backward: Values, whole: Values) -> Flags:
    """Return for each rank whether this phase makes steps longer: by itself, or with its part of the backward pass."""
    first, last = _thirds(whole)
    early = np.array([_thirds(own)[0] for own in values.T])
    growth = _growth(values)
    is_steady = np.array([measure_growth(own)[1] >= STEADY for own in values.T])
    is_alone = growth >= _GROWS * (last - first)
    is_doubled = (growth >= (_TWICE - 1) * early) & (growth >= _PARTLY * (last - first))
    has_rest = growth + np.nan_to_num(backward) >= _GROWS * (last - first)
    return np.asarray(is_steady & (early < _AT_FIRST * first) & (is_alone | (is_doubled & has_rest)), np.bool_)


def _growth(values: Values) -> Values:
    """Return for each rank how much longer the last third of the steps takes than the first."""
    return np.array([last - first for first, last in map(_thirds, values.T)])
