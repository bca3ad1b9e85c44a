"""How much the step time of an unchanged job differs from run to run, by all series of a fleet.

Each series shows its own noise, but a short one shows it badly. So the noise of all series is fitted too (Smyth 2004,
"Linear models and empirical Bayes methods"): where they are alike, each borrows from the others, as if it had `runs`
more; where they differ, it borrows little. Runs that follow each other may be alike as well, which `correlation` shows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from lostflops.core.stats import log_chi_square
from lostflops.fleet.robust import Floats, Ints

FLOOR: Final = 3e-4
"""Smallest noise that is believed, as a part of the step."""
_FEWEST_SERIES: Final = 10
_FEWEST_RUNS: Final = 6
_FEWEST_PAIRS: Final = 200
_MOST_BORROWED: Final = 40
_PAIRS_PER_RUN: Final = 2 / 3
"""Independent squares in the squared differences of neighbours (von Neumann 1941)."""


@dataclass(frozen=True, slots=True)
class StepNoise:
    """What other series show of the noise of one."""

    runs: float
    """As many runs as they are worth; 0 if they show nothing."""
    spread: float
    """Standard deviation, as a part of the step."""
    correlation: float
    """Between neighbouring runs."""


OWN_NOISE: Final = StepNoise(0, 0, 0)
"""A series shows its own noise only."""


def fit_step_noise(tables: Iterable[tuple[Floats, Ints]]) -> StepNoise:
    """Fit the noise of series. Each table has rows of logarithms of step times, and how many of each are valid."""
    long = ((values, lengths, lengths >= _FEWEST_RUNS) for values, lengths in tables)
    parts = [_measure_own_noise(values[rows], lengths[rows]) for values, lengths, rows in long if rows.any()]
    if sum(len(part.variances) for part in parts) < _FEWEST_SERIES:
        return OWN_NOISE
    variances, freedom, near, far = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    correlation = _estimate_correlation(near, far)
    runs, variance = _fit_variances(variances, freedom)
    return StepNoise(runs, float(np.sqrt(variance / (1 - correlation))), correlation)


class _OwnNoise(NamedTuple):
    """What each of some series shows of its noise."""

    variances: Floats
    freedom: Floats
    near: Floats
    """Differences of neighbouring runs of all series, over their usual size in the series."""
    far: Floats
    """The same of runs that are two apart."""


def _measure_own_noise(values: Floats, lengths: Ints) -> _OwnNoise:
    differences = np.where(np.arange(values.shape[1] - 1) < lengths[:, None] - 1, np.diff(values, axis=1), np.nan)
    size = np.maximum(1.0484 * np.nanmedian(np.abs(differences), axis=1), FLOOR)[:, None]
    bound = 3 * np.sqrt(2) * size
    variances = np.maximum(np.nanmean(np.clip(differences, -bound, bound) ** 2, axis=1) / 2, FLOOR**2)
    places, scaled = np.arange(values.shape[1]), values / size
    near, far = (np.abs(scaled[:, lag:] - scaled[:, :-lag])[places[:-lag] < lengths[:, None] - lag] for lag in (1, 2))
    return _OwnNoise(variances, np.asarray(_PAIRS_PER_RUN * (lengths - 1), float), near, far)


def _estimate_correlation(near: Floats, far: Floats) -> float:
    """Estimate how alike neighbouring runs are: by how much more runs two apart differ than neighbours."""
    if far.size < _FEWEST_PAIRS:
        return 0.0
    correlation = float(np.median(far) / np.median(near)) ** 2 - 1
    return float(min(correlation, 0.8)) if correlation > 3 / np.sqrt(far.size) else 0.0


def _fit_variances(variances: Floats, freedom: Floats) -> tuple[float, float]:
    """Fit how alike variances are: the degrees of freedom of their common distribution, and its scale."""
    shifts, chance = log_chi_square(freedom)
    logs = np.log(variances) - shifts
    excess = max(float(np.var(logs, ddof=1) - np.mean(chance)), 1e-3)
    runs = min(float(_MOST_BORROWED), float(len(variances)), _find_freedom(excess))
    shift, _ = log_chi_square(np.array([runs]))
    return runs, float(np.exp(np.mean(logs) + shift[0]))


def _find_freedom(wanted: float) -> float:
    """Find the freedom with which the logarithm of a measured variance has this variance, which falls with it."""
    low, high = 2e-3, 2e3
    for _ in range(60):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if log_chi_square(np.array([middle]))[1][0] > wanted else (low, middle)
    return low
