"""The line through times of collectives: T(S) = alpha + beta S, if one fits.

The relative error counts, so that 1 KB weighs as much as 1 GB. If sizes do not vary, or no line fits the times, the
reason is reported and no line is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

FEWEST_SIZES: Final = 3
LEAST_RANGE: Final = 4.0
"""The largest size must be at least this many times the smallest."""
FARTHEST: Final = 0.35
"""Largest relative distance from the line that any size may have."""

Floats = npt.NDArray[np.float64]


class NoLineFits(Exception):
    """Raised if no line fits; its text says why."""


@dataclass(frozen=True, slots=True)
class AlphaBeta:
    """A line through the times of collectives: time = alpha + beta x size."""

    alpha: float
    """Latency, in ns."""
    beta: float
    """Time per byte, in ns."""
    farthest: float
    """Relative distance from the line of the farthest size."""

    def time(self, size: float) -> float:
        return self.alpha + self.beta * size


def alpha_beta(times: Mapping[int, float]) -> AlphaBeta:
    """Fit a line to times in ns by size in bytes; raise `NoLineFits` if there is none.

    >>> line = alpha_beta({1_000: 6_000, 10_000: 15_000, 100_000: 105_000})
    >>> round(line.alpha), round(line.beta, 6)
    (5000, 1.0)
    """
    known = {size: ns for size, ns in sorted(times.items()) if size > 0 and ns > 0}
    if len(known) < FEWEST_SIZES:
        count = "one size" if len(known) == 1 else f"{len(known)} sizes"
        raise NoLineFits(f"{count}, {FEWEST_SIZES} needed" if known else "sizes are unknown")
    x, y = np.array([*known], np.float64), np.array([*known.values()], np.float64)
    if x[-1] < LEAST_RANGE * x[0]:
        raise NoLineFits(f"sizes differ by a factor of {x[-1] / x[0]:.2g}, {LEAST_RANGE:g} needed")
    alpha, beta = _line(x, y)
    if beta <= 0:
        raise NoLineFits("larger sizes are not slower")
    farthest = float(np.max(np.abs(alpha + beta * x - y) / y))
    if farthest > FARTHEST:
        raise NoLineFits(f"the nearest line is {farthest:.0%} off")
    return AlphaBeta(alpha, beta, farthest)


def _line(x: Floats, y: Floats) -> tuple[float, float]:
    """Fit alpha and beta by least squares of relative errors; latency is not negative."""
    columns = np.stack((1 / y, x / y), axis=1)
    # Sizes span many decades: without a common scale the smaller column is lost.
    scale = np.abs(columns).max(axis=0)
    alpha, beta = np.linalg.lstsq(columns / scale, np.ones(y.size), rcond=None)[0] / scale
    if alpha < 0:
        ratio = x / y
        return 0.0, float(ratio.sum() / (ratio**2).sum())
    return float(alpha), float(beta)
