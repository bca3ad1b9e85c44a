"""Range of a predicted step: how far the normal step of a later run may be from it.

It has four sources of error. They are independent, so they add as squares: the replay (its error on the run itself),
the changes (how uncertain each is about its own effect, and how far profiling slowed down the part that it saves), the
steps (the level of a run is known only as well as its steps agree), and the runs (two runs of one job differ).

The last two come from all normal steps of the run if the collector timed enough of them. One run shows a part of how
far runs differ: if the level of its steps drifts from one quarter to the next, that of another run is as far off. The
rest is a constant that no single run shows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import hypot, sqrt
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.account.pace.blocks import Location
from lostflops.predict.costs.quantiles import t_quantile

CONFIDENCE: Final = 0.9
BETWEEN_RUNS: Final = 0.02
"""Part by which the normal steps of two runs of one job differ in nine of ten cases, however steady each is: other
neighbours, other clocks, other places in memory. No single run shows it."""
BETWEEN_RUNS_ON_HOSTS: Final = 0.05
"""The same for jobs without an accelerator, which share the cores of a host with everything else, if the run does not
show how steady these are."""
BETWEEN_STEADY_RUNS: Final = 0.03
"""The same if the normal steps of the run show how far their level drifts; the drift is added."""
_MOST_BETWEEN: Final = 0.1
"""Upper limit of the difference, because the drift of four quarters is only a rough estimate."""
_NINE_OF_TEN: Final = 1.6449
ONE_STEP: Final = 0.1
"""Assumed difference for the mean of a single step, which says nothing about other steps."""
FIRST_STEP: Final = 0.25
"""Part of the first recorded step's extra time by which that extra time differs between runs."""
_FEWEST: Final = 3
"""With fewer steps than this, the first step cannot be separated from the others."""
_MANY: Final = 8
_MOST_TOGETHER: Final = 0.8


@dataclass(frozen=True, slots=True)
class Doubts:
    """Half the width of the interval that each source of error would give alone, in ns."""

    replay: float
    changes: float
    steps: float
    runs: float

    @property
    def together(self) -> float:
        return sqrt(self.replay**2 + self.changes**2 + self.steps**2 + self.runs**2)


def doubts(
    predicted: float,
    *,
    replay_error: float,
    moved: Iterable[tuple[float, float]],
    noise: float,
    between: float = BETWEEN_RUNS,
) -> Doubts:
    """Compute each source of error. `moved` has for each change how far it moves the mean step, and which part of that
    is uncertain; `noise` and `between` (runs) are parts of a step.

    >>> doubts(80.0, replay_error=-0.01, moved=[(-20.0, 0.25)], noise=0.05)
    Doubts(replay=0.8, changes=5.0, steps=4.0, runs=1.6)
    """
    changes = sqrt(sum((ns * doubt) ** 2 for ns, doubt in moved))
    return Doubts(abs(replay_error) * predicted, changes, noise * predicted, between * predicted)


def between_runs(drift: float) -> float:
    """Return the part by which two runs on a host differ in nine of ten cases, if the level of one drifts by `drift`.

    >>> between_runs(0.0), round(between_runs(0.02), 3), between_runs(0.5)
    (0.03, 0.055, 0.1)
    """
    return min(hypot(BETWEEN_STEADY_RUNS, _NINE_OF_TEN * sqrt(2) * drift), _MOST_BETWEEN)


def noise_of(location: Location) -> float:
    """Return the part by which the level of as many other steps of the job may differ from this one.

    >>> round(noise_of(Location(100.0, 0.01, 30.0)), 3)
    0.024
    """
    return t_quantile(CONFIDENCE, location.freedom) * location.error * sqrt(2)


def noise(step: npt.NDArray[np.int32] | npt.NDArray[np.int64], times: npt.NDArray[np.int64]) -> float:
    """Return the part by which the mean of these profiled steps may differ from the mean of as many others of the job.

    Ranks wait for each other, so a step counts once, however many ranks took part in it. The first step is treated
    separately: in every run it includes the cost of starting to record, and that is not chance.

    >>> noise(np.array([0, 0, 1, 1, 2, 2]), np.array([100, 100, 100, 100, 100, 100]))
    0.0
    >>> round(noise(np.arange(5), np.array([100, 95, 100, 105, 100])), 3)
    0.061
    >>> round(noise(np.arange(5), np.array([200, 95, 100, 105, 100])), 3)
    0.078
    >>> noise(np.array([0, 0]), np.array([90, 110]))
    0.1
    """
    _, place, count = np.unique(step, return_inverse=True, return_counts=True)
    means = np.bincount(place, weights=times) / count
    if means.size < _FEWEST:
        return ONE_STEP if means.size < 2 else _chance(means, means.size)
    others = means[1:]
    first = FIRST_STEP * abs(means[0] - others.mean()) * sqrt(2) / means.size
    return float(np.hypot(first, _chance(others, means.size) * others.mean()) / means.mean())


def _chance(means: npt.NDArray[np.float64], count: int) -> float:
    """Return the part by which the mean of `count` steps may differ from another such mean, if steps vary as these
    do."""
    spread = means.std(ddof=1) * _lasting(means) * sqrt(2 / count)
    return float(t_quantile(CONFIDENCE, means.size - 1) * spread / means.mean())


def _lasting(means: npt.NDArray[np.float64]) -> float:
    """Return how many times further a mean deviates because neighbouring steps are slow together: the factor is sqrt((1
    + r) / (1 - r)) with r their correlation. A few steps show too little of it, so with enough steps r is corrected
    (Kendall 1954).

    >>> _lasting(np.array([9.0, 11, 9, 11, 9, 11, 9, 11])), round(_lasting(np.array([9.0, 9, 9, 9, 11, 11, 11, 11])), 2)
    (1.0, 3.0)
    """
    off, count = means - means.mean(), means.size
    if count < _FEWEST + 1 or not off.any():
        return 1.0
    together = float((off[1:] * off[:-1]).sum() / (off**2).sum())
    if count >= _MANY:
        together = (together * count + 1) / (count - 3)
    together = min(max(together, 0.0), _MOST_TOGETHER)
    return sqrt((1 + together) / (1 - together))
