"""Location of the step times of a run, and how uncertain it is.

The location is that of the middle of the steps: the mean without the fastest and the slowest fifth. A median jumps if
steps alternate, and a mean follows a few steps that something else held up; but the mean is what is paid for, so it is
shown too.

Neighbouring steps are slow together, so the error is that of as many independent steps as they are worth
(`effective_steps`); for the middle of the steps it is that of the steps with the outer fifths drawn in (Tukey and
McLaughlin, Sankhya A 25, 1963). What comes back every so many steps is no error. docs/decisions/explain.md
says why this is no bootstrap.

A run also drifts: other jobs on the host, clocks and temperatures change over minutes. Such noise has no shortest
averaging time (flicker noise), so two runs differ about as much as two parts of one run do. `drift` measures that.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.core.stats import effective_steps, without_period

Times = npt.NDArray[np.float64]

TRIMMED: Final = 0.2
"""Share of the steps that is left out at either end."""
_FEWEST: Final = 8
"""Fewest steps that show their own error and drift."""
PARTS: Final = 8
"""Parts of a run that are compared with each other, of at least two steps each."""
_USUAL_SPREAD: Final = 0.1
_USUAL_FREEDOM: Final = 2.0
"""Prior for runs of fewer steps than `_FEWEST`: steps deviate by a tenth, known as well as from three steps. Without it
two steps would leave an interval of a factor of ten."""


@dataclass(frozen=True, slots=True)
class Location:
    """Location of the steps of one run, and how uncertain it is."""

    value: float
    error: float
    """Standard error as a part of `value`, by how steps differ within the run; infinite for a single step."""
    freedom: float
    """Degrees of freedom of `error`."""
    drift: float = 0.0
    """Standard deviation of the locations of the run's parts, as a part of `value`; 0 where the run is too short."""
    drift_freedom: float = 0.0


def typical(times: Times) -> Location:
    """Return the location of the middle steps."""
    return _estimate_location(times, TRIMMED)


def mean(times: Times) -> Location:
    return _estimate_location(times, 0.0)


def _estimate_location(times: Times, trimmed: float) -> Location:
    count = times.size
    value = float(_middle(times, trimmed))
    if count < 2:
        return Location(value, inf, 0.0)
    if not np.ptp(times) or not value:
        return Location(value, 0.0, count - 1.0)
    if count < _FEWEST:
        return _locate_few(times, value)
    steady = without_period(times)
    value = value if trimmed else float(steady.mean())
    drawn_in = np.clip(steady, *np.quantile(steady, (trimmed, 1 - trimmed)))
    worth = max(effective_steps(drawn_in), 2.0)
    error = float(drawn_in.std(ddof=1)) / (1 - 2 * trimmed) / sqrt(worth) / value
    parts = min(PARTS, count // 2)
    return Location(value, error, min(worth, count) - 1, _drift(steady, drawn_in, trimmed, parts) / value, parts - 1.0)


def _drift(times: Times, drawn_in: Times, trimmed: float, parts: int) -> float:
    """Return the standard deviation of the locations of the run's parts, without what independent steps cause: how much
    steps differ from the next ones."""
    located = [_middle(part, trimmed) for part in np.array_split(times, parts)]
    alone = float((np.diff(drawn_in) ** 2).mean()) / 2 / (1 - 2 * trimmed) ** 2 * parts / times.size
    return sqrt(max(float(np.var(located, ddof=1)) - alone, 0.0))


def _locate_few(times: Times, value: float) -> Location:
    """Weigh the spread of a few steps with the usual one, each by its degrees of freedom."""
    own = times.size - 1.0
    spread = float(times.std(ddof=1)) / value
    variance = (_USUAL_FREEDOM * _USUAL_SPREAD**2 + own * spread**2) / (_USUAL_FREEDOM + own)
    return Location(value, sqrt(variance / times.size), _USUAL_FREEDOM + own)


def _middle(times: Times, trimmed: float) -> float:
    cut = int(trimmed * times.size)
    return float(np.sort(times)[cut : times.size - cut].mean())
