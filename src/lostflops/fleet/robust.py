"""Means, spreads and tails that a few wild values do not move: Student's t in place of the normal distribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_FREEDOMS: Final = np.array([1 / 30, 1 / 15, 1 / 10, 1 / 7, 1 / 5, 1 / 4, 1 / 3, 1 / 2.5])
"""1 over degrees of freedom, of the table below."""
_MEDIANS: Final = np.array([0.690, 0.706, 0.724, 0.745, 0.776, 0.804, 0.854, 0.897])
_RATIOS_95: Final = np.array([2.951, 3.003, 3.064, 3.154, 3.304, 3.467, 3.804, 4.127])
_RATIOS_99: Final = np.array([3.924, 4.057, 4.217, 4.463, 4.905, 5.405, 6.571, 7.802])
"""Of the size of the difference of two draws, over root 2: its median, and other quantiles over the median."""
USUAL_FREEDOM: Final = 4.0
"""Where too little is known of the tails."""
_FEW: Final = 40
_MANY: Final = 300
_ENOUGH: Final = 30_000


@dataclass(frozen=True, slots=True)
class StudentNoise:
    """Student's t distribution around 0."""

    spread: float
    freedom: float


@dataclass(frozen=True, slots=True)
class GroupMeans:
    """The mean of each group; NaN for a group without values."""

    mean: Floats
    variance: Floats
    """Its squared standard error."""
    count: Ints


def compute_group_medians(values: Floats, groups: Ints, count: int) -> Floats:
    """Compute the median of each of so many groups; NaN for a group without values."""
    order = np.lexsort((values, groups))
    sizes = np.bincount(groups, minlength=count)
    starts = np.cumsum(sizes) - sizes
    is_filled = sizes > 0
    medians = np.full(count, np.nan)
    low = values[order][(starts + (sizes - 1) // 2)[is_filled]]
    high = values[order][(starts + sizes // 2)[is_filled]]
    medians[is_filled] = (low + high) / 2
    return medians


def compute_group_means(values: Floats, variances: Floats, groups: Ints, count: int, freedom: float) -> GroupMeans:
    """Compute the most likely mean of each group under Student's t with these squared spreads.

    Groups that differ more among themselves than the spreads allow get a larger error.
    """
    sizes = np.bincount(groups, minlength=count)
    mean = compute_group_medians(values, groups, count)
    for _ in range(6):
        distance = (values - mean[groups]) ** 2 / variances
        weights = (freedom + 1) / (freedom + distance)
        total = np.bincount(groups, weights / variances, minlength=count)
        with np.errstate(invalid="ignore"):
            mean = np.bincount(groups, values * weights / variances, minlength=count) / total
    excess = np.bincount(groups, weights * distance, minlength=count) / np.maximum(sizes - 1, 1)
    with np.errstate(divide="ignore"):
        known = (freedom + 3) / (freedom + 1) / np.bincount(groups, 1 / variances, minlength=count)
    return GroupMeans(mean, known * np.maximum(1, np.where(sizes > 1, excess, 1)), sizes)


def estimate_noise(differences: Floats, variances: Floats) -> StudentNoise:
    """Estimate the noise of values from differences of two, of which these variances are known already.

    It is estimated by quantiles, so pairs between which something changed do not matter while they are few.
    """
    if not differences.size:
        return StudentNoise(0, USUAL_FREEDOM)
    part = slice(None, None, -(-len(differences) // _ENOUGH))
    sizes, variances = np.abs(differences[part]), variances[part]
    spread = _match_median(sizes, variances, 0.6745)
    freedom = _estimate_freedom(sizes / np.sqrt(variances + 2 * spread**2 + 1e-18))
    constant = float(np.interp(1 / freedom, _FREEDOMS, _MEDIANS))
    return StudentNoise(_match_median(sizes, variances, constant), freedom)


def _match_median(sizes: Floats, variances: Floats, median: float) -> float:
    """Find the spread that gives differences over their standard error this median."""
    low, high = 0.0, float(sizes.max()) + 1e-12
    for _ in range(40):
        middle = (low + high) / 2
        if np.median(sizes / np.sqrt(variances + 2 * middle**2 + 1e-18)) > median:
            low = middle
        else:
            high = middle
    return high if high > 1e-9 else 0.0


def _estimate_freedom(sizes: Floats) -> float:
    """Estimate degrees of freedom, by whichever quantile shows the heavier tail."""
    if sizes.size < _FEW:
        return USUAL_FREEDOM
    median, high, highest = (float(np.quantile(sizes, part)) for part in (0.5, 0.95, 0.99))
    inverse = float(np.interp(high / max(median, 1e-12), _RATIOS_95, _FREEDOMS))
    if sizes.size >= _MANY:
        inverse = max(inverse, float(np.interp(highest / max(median, 1e-12), _RATIOS_99, _FREEDOMS)))
    return 1 / inverse
