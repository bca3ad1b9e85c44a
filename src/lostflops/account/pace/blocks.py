"""Uncertainty of the location of step times: neighbouring steps are slow together, so blocks are redrawn.

A block is as long as the series' own autocorrelation requires (Politis and White, Econometric Reviews 23, 2004, with
the correction of Patton, Politis and White, 28, 2009, for circular blocks), and at least the cube root of the number of
steps, because few steps show too little of it. The location is that of the middle of the steps: the mean without the
fastest and the slowest fifth. A median jumps if steps alternate, and a mean follows a few steps that something else
held up; but the mean is what is paid for, so it is shown too.

A run also drifts: other jobs on the host, clocks and temperatures change over minutes. Such noise has no shortest
averaging time (flicker noise), so two runs differ about as much as two parts of one run do. `drift` measures that.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf, log10, sqrt
from typing import Final

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.float64]

TRIMMED: Final = 0.2
"""Share of the steps that is left out at either end."""
_DRAWS: Final = 400
_MOST_DRAWN: Final = 4_000_000
"""Most values that are drawn at once."""
_FEWEST: Final = 8
"""Fewest steps in which autocorrelation can be seen."""
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
    value = float(_middle(times[np.newaxis], trimmed)[0])
    if count < 2:
        return Location(value, inf, 0.0)
    if not np.ptp(times) or not value:
        return Location(value, 0.0, count - 1.0)
    if count < _FEWEST:
        return _located_by_few(times, value)
    asked = block_length(np.clip(times, *np.quantile(times, (trimmed, 1 - trimmed))))
    length = max(asked, ceil(count ** (1 / 3)))
    blocks = count / length
    spread = float(_redrawn(times, length, trimmed).std())
    return Location(value, spread * sqrt(blocks / (blocks - 1)) / value, blocks - 1, *_drift(times, trimmed))


def _located_by_few(times: Times, value: float) -> Location:
    """Weigh the spread of a few steps with the usual one, each by its degrees of freedom."""
    own = times.size - 1.0
    spread = float(times.std(ddof=1)) / value
    variance = (_USUAL_FREEDOM * _USUAL_SPREAD**2 + own * spread**2) / (_USUAL_FREEDOM + own)
    return Location(value, sqrt(variance / times.size), _USUAL_FREEDOM + own)


def _drift(times: Times, trimmed: float) -> tuple[float, float]:
    """Return the standard deviation of the logarithms of the parts' locations, and its degrees of freedom."""
    parts = np.array_split(times, min(PARTS, times.size // 2))
    located = np.array([_middle(part[np.newaxis], trimmed)[0] for part in parts])
    if not located.all():
        return 1.0, len(parts) - 1.0
    return float(np.log(located).std(ddof=1)), len(parts) - 1.0


def _middle(times: Times, trimmed: float) -> Times:
    """Return the trimmed mean of each row."""
    count = times.shape[1]
    cut = int(trimmed * count)
    if cut:
        times = np.partition(times, (cut, count - cut - 1), axis=1)[:, cut : count - cut]
    found: Times = times.mean(axis=1)
    return found


def _redrawn(times: Times, length: int, trimmed: float) -> Times:
    """Return the locations of series that are put together from circular blocks of this one; the same each time."""
    count = times.size
    chance = np.random.default_rng(count)
    blocks, found = ceil(count / length), []
    at_once = max(1, min(_DRAWS, _MOST_DRAWN // count))
    for first in range(0, _DRAWS, at_once):
        starts = chance.integers(0, count, (min(at_once, _DRAWS - first), blocks, 1))
        places = (starts + np.arange(length)).reshape(len(starts), -1)[:, :count] % count
        found.append(_middle(times[places], trimmed))
    return np.concatenate(found)


def block_length(times: Times) -> int:
    """Return the length of a block in steps; 1 if steps are independent, and never more than a third of them.

    >>> chance = np.random.default_rng(0)
    >>> block_length(chance.normal(size=1000)), block_length(np.repeat(chance.normal(size=100), 10))
    (1, 25)
    """
    count, off = int(times.size), times - times.mean()
    if count < _FEWEST or not off.any():
        return 1
    silent = max(5, ceil(sqrt(log10(count))))
    most = min(ceil(sqrt(count)) + silent, count - 1)
    together = _covariances(off, most)
    threshold = 2 * sqrt(log10(count) / count)
    lasting = _lasting(np.abs(together[1:] / together[0]) > threshold, silent)
    reach = min(2 * lasting, most)
    if not reach:
        return 1
    lag = np.arange(reach + 1)
    weight = np.clip(2 * (1 - lag / reach), 0, 1) * together[: reach + 1] * np.where(lag, 2, 1)
    slope, level = float((weight * lag).sum()), float(weight.sum())
    longest = max(1, count // 3)
    if level <= 0:
        return longest
    ideal = float((1.5 * slope**2 / level**2 * count) ** (1 / 3))
    return min(max(1, ceil(ideal)), longest)


def _covariances(off: Times, most: int) -> Times:
    """Return the covariances at lags from 0 to `most`."""
    size = 1 << (2 * off.size - 1).bit_length()
    power = np.abs(np.fft.rfft(off, size)) ** 2
    found: Times = np.fft.irfft(power, size)[: most + 1] / off.size
    return found


def _lasting(is_seen: npt.NDArray[np.bool_], silent: int) -> int:
    """Return the last lag before `silent` ones in a row with nothing seen; else the last at which something is seen."""
    quiet = 0
    for lag, seen in enumerate(is_seen.tolist(), 1):
        quiet = 0 if seen else quiet + 1
        if quiet == silent:
            return lag - silent
    return int(np.flatnonzero(is_seen)[-1]) + 1 if is_seen.any() else 0
