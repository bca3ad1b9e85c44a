"""Which of several devices is best, and how sure that is.

Errors that all devices share (of the replay, of the recorded steps) move all predictions alike, so only the own error
of each counts. Own errors are normal and independent. All devices are assumed to have the host of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

NINE_OF_TEN: Final = 1.6449
"""Half the width of a range over the standard deviation."""
_DRAWS: Final = 100_000
_SEED: Final = 29


def chances_of_least(
    values: Sequence[float], halves: Sequence[float], floors: Sequence[float] = ()
) -> npt.NDArray[np.float64]:
    """Return the probability of each value to be the least. `halves` are half the widths of their ranges, and no value
    gets below its floor. Equal values share the probability.

    >>> chances_of_least([1.0, 2.0], [0.1, 0.1]).tolist()
    [1.0, 0.0]
    >>> chances_of_least([1.0, 1.0], [0.0, 0.0]).tolist()
    [0.5, 0.5]
    """
    draws = np.random.default_rng(_SEED).standard_normal((_DRAWS, len(values)))
    drawn = np.asarray(values) + draws * (np.asarray(halves) / NINE_OF_TEN)
    if floors:
        drawn = np.maximum(drawn, np.asarray(floors))
    is_least = drawn == drawn.min(axis=1, keepdims=True)
    shared: npt.NDArray[np.float64] = (is_least / is_least.sum(axis=1, keepdims=True)).mean(axis=0)
    return shared


def frontier(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the places of points that no other point beats: none is at most as much in both and less in one.

    >>> frontier([(1.0, 5.0), (2.0, 2.0), (3.0, 3.0), (4.0, 1.0)])
    [0, 1, 3]
    """
    found: list[int] = []
    least = float("inf")
    order = sorted(range(len(points)), key=lambda place: points[place])
    for place in order:
        _, second = points[place]
        if second < least or (found and points[place] == points[found[-1]]):
            found.append(place)
            least = min(least, second)
    return sorted(found)
