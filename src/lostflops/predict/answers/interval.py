"""How far a prediction may be off: the interval in which nine of ten later runs should have their mean step.

Four things can be wrong, and none knows of the others, so that they add as squares: the replay (its error on the run
itself), the changes (what each doubts of its own effect), the mean of the steps that were recorded, and that of the run
it is compared with. The last two are chance: steps differ, and runs of the same job do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.predict.costs.quantiles import t_quantile

CONFIDENCE: Final = 0.9
BETWEEN_RUNS: Final = 0.02
"""By what part the mean steps of two runs of one job differ in nine of ten cases, however little their steps do: other
neighbours, other clocks, other places in memory. No single run tells it."""
BETWEEN_RUNS_ON_HOSTS: Final = 0.05
"""The same where no accelerator computes, but cores that everything on a host shares."""
ONE_STEP: Final = 0.1
"""The same for the mean of a single step, which tells nothing about others."""
FIRST_STEP: Final = 0.25
"""Of what the first recorded step takes more than the others: by how much that differs between runs."""
_FEWEST: Final = 3
"""Steps of which the first can be told apart."""
_MANY: Final = 8
_MOST_TOGETHER: Final = 0.8


@dataclass(frozen=True, slots=True)
class Doubts:
    """Half the width that each would give the interval alone, in ns."""

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
    """`moved` has for each change how far it moves the mean step and what part of that it doubts; `noise` and `between`
    (runs) are parts of a step.

    >>> doubts(80.0, replay_error=-0.01, moved=[(-20.0, 0.25)], noise=0.05)
    Doubts(replay=0.8, changes=5.0, steps=4.0, runs=1.6)
    """
    changes = sqrt(sum((ns * doubt) ** 2 for ns, doubt in moved))
    return Doubts(abs(replay_error) * predicted, changes, noise * predicted, between * predicted)


def noise(step: npt.NDArray[np.int32] | npt.NDArray[np.int64], times: npt.NDArray[np.int64]) -> float:
    """By what part of it the mean of these steps may differ from that of as many others of the same job.

    Ranks wait for each other, so that a step counts once, however many ranks took part in it. The first one is apart:
    it holds what it costs to start recording, in every run, and that is not chance.

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
    """What the mean of `count` steps may differ by from another such mean, where steps deviate as these do."""
    spread = means.std(ddof=1) * _lasting(means) * sqrt(2 / count)
    return float(t_quantile(CONFIDENCE, means.size - 1) * spread / means.mean())


def _lasting(means: npt.NDArray[np.float64]) -> float:
    """How many times as far a mean deviates because neighbouring steps are slow together: sqrt((1 + r) / (1 - r)) with
    r their correlation. Few steps show too little of it, which is made up for (Kendall 1954) where it can be seen.

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
