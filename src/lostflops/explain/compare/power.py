"""How many runs or steps would show a difference of a given size in nine of ten cases?

Few runs measure their own noise badly, and a noise that is too small gives a number that is too small. So the noise is
taken as large as it may be in eight of ten cases, given the measured one; the part that steps do not explain is
attributed to runs. Longer runs are suggested only if there are already enough runs to show that steps cause the noise.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from math import ceil, inf, log1p, sqrt
from typing import Final

from lostflops.core.stats import t_quantile, variance_bound
from lostflops.explain.compare.change import CONFIDENCE, Noise

POWER: Final = 0.9
_ASSURED: Final = 0.8
_FEWEST: Final = 4
"""With fewer runs on each side, it is unknown whether the difference comes from steps."""
_MOST_RUNS: Final = 1000
_MOST_TIMES: Final = 100
"""Longer runs are suggested only up to this many times the present number of steps."""


@dataclass(frozen=True, slots=True)
class Needed:
    """Numbers of runs or steps that are needed."""

    runs: int | None
    """Runs on each side, each with as many steps as now; None if no number is enough."""
    steps: int | None
    """Steps of each run, with as many runs as now; None if longer runs do not help."""


def estimate_needed_runs(noise: Noise, effect: float, *, runs: int, steps: int) -> Needed:
    """Estimate the runs or steps that show an effect, given `runs` on each side with `steps` each.

    >>> estimate_needed_runs(Noise(0.01, 0.001, inf), 0.03, runs=1, steps=100)
    Needed(runs=5, steps=None)
    >>> estimate_needed_runs(Noise(0.01, 0.01, 8), 0.03, runs=5, steps=100)
    Needed(runs=7, steps=282)
    """
    if not noise.runs < inf:
        return Needed(None, None)
    size, most = log1p(effect), _bound_noise(noise)
    found = bisect_left(range(2, _MOST_RUNS + 1), -size, key=lambda count: -_compute_detectable_effect(most, count)) + 2
    return Needed(found if found <= _MOST_RUNS else None, _steps(noise, size, runs=runs, steps=steps))


def _compute_detectable_effect(spread: float, runs: int) -> float:
    """Compute the difference that this many runs on each side show in nine of ten cases."""
    freedom = _welch(runs)
    return (t_quantile(CONFIDENCE, freedom) + t_quantile(2 * POWER - 1, freedom)) * spread * sqrt(2 / runs)


def _welch(runs: int) -> float:
    """Return the mean degrees of freedom of two sides with similar runs; fewer than both together, because they never
    look quite alike."""
    own = runs - 1
    return 2 * own * (own + 1) / (own + 2)


def _steps(noise: Noise, size: float, *, runs: int, steps: int) -> int | None:
    if runs < _FEWEST or not 0 < noise.steps < inf:
        return None
    allowed = (size / _compute_detectable_effect(1.0, runs)) ** 2
    left = allowed - max(_bound_noise(noise) ** 2 - noise.steps**2, 0.0)
    if left <= 0:
        return None
    asked = ceil(steps * noise.steps**2 / left)
    return max(asked, steps) if asked <= _MOST_TIMES * steps else None


def _bound_noise(noise: Noise) -> float:
    return noise.runs * sqrt(variance_bound(noise.freedom, _ASSURED)) if noise.is_measured else noise.runs
