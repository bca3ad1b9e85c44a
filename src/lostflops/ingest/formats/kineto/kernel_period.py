"""The period of a sequence of kernels, where it repeats as a whole."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Ns = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int64]

_FEWEST: Final = 3
"""Fewest complete periods."""
_ALIKE: Final = 0.995
"""Fraction of the kernels that must be the same one period later."""
_SHORTEST: Final = 4
"""Fewest kernels in a period."""
_MOST_TRIED: Final = 64


def first_of_periods(names: npt.NDArray[np.uint32], start: Ns, stop: Ns) -> Indices:
    """Return the index of the first kernel of each period; empty if nothing repeats.

    A period begins after the longest pause. Layers of one step are not periods: some kernel, such as that of an
    embedding, runs once in a step, and only its distances are tried.

    >>> times = np.arange(13) * 10
    >>> first_of_periods(np.array([9, 1, 2, 1, 2, 7] * 2 + [9]), times, times + 1).tolist()
    []
    >>> times = np.arange(24) * 10
    >>> first_of_periods(np.array([9, 1, 2, 1, 2, 7] * 4), times, times + 1).tolist()
    [0, 6, 12, 18]
    """
    period = _period(names)
    if not period:
        return np.empty(0, np.int64)
    pause = np.concatenate(([0], start[1:] - np.maximum.accumulate(stop)[:-1]))
    pause[0] = pause[period]
    whole = names.size // period * period
    total = np.maximum(pause[:whole], 0).reshape(-1, period).sum(axis=0)
    return np.arange(int(total.argmax()), names.size, period)


def _period(names: npt.NDArray[np.uint32]) -> int:
    """Return the number of kernels after which the sequence repeats; 0 if it does not."""
    kinds, counts = np.unique(names, return_counts=True)
    if names.size < _FEWEST * _SHORTEST or counts.min() < _FEWEST:
        return 0
    places = np.flatnonzero(names == kinds[counts.argmin()])
    tried = np.unique(places[1 : 1 + places.size // 2] - places[0])[:_MOST_TRIED]
    for period in tried.tolist():
        is_long_enough = period >= _SHORTEST and names.size >= _FEWEST * period
        if is_long_enough and float((names[period:] == names[:-period]).mean()) >= _ALIKE:
            return int(period)
    return 0
