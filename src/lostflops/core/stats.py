"""Statistics: distributions and exact tests, the error of steps that depend on each other, and the spread between runs.

SciPy's special functions are imported when they are first used: importing them takes 0.3 s, and verbs that decide
nothing do not need them. `scipy.stats` takes 1.1 s, so the two tests that only exist there are short functions here.

Steps are not trials: whatever slows a step down slows its neighbours down too. `effective_steps` says how many
independent steps a series is worth.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from math import comb, erfc, inf, sqrt
from typing import Final

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

NINE_OF_TEN: Final = 1.6449
"""Standard deviations of a normal distribution that hold nine of ten values, or 95% of them on one side."""
_MOST_BLOCKS: Final = 200
"""A trend compares the means of this many blocks, if there are more values: all pairs of them would fill memory."""
_FEWEST: Final = 8
"""Fewest steps in which autocorrelation can be seen."""
_FEWEST_BEATS: Final = 5
"""A period is seen if it comes back at least this often: three times may be chance in steps that wander."""
_PERIODIC: Final = 0.5
"""Correlation of steps one period apart that makes a period: then most of the variance comes back."""
_LEAST_TIME: Final = 0.5
"""Steps that alternate know their mean better than independent ones, but a few alternate by chance: so they count at
most twice."""


class MachineKind(Enum):
    """Kinds of machines by how far runs of one job differ on them, however steady each run is.

    The value is the part by which the levels (typical step or mean) of two runs differ in nine of ten pairs.
    """

    ACCELERATOR = 0.02
    """Measured: MLPerf Training 5.0 has all steps of 14 systems of 256 to 8,192 GPUs that ran Llama 3.1 405B three
    times. Nine of ten of the 42 pairs of runs differ by at most 0.9% in the typical step and 1.5% in the mean; the
    largest differences are 1.3% and 2.3%."""
    HOST = 0.05
    """Assumed, for a machine without other load. On two shared cores, nine of ten pairs of runs one after the other
    differ by 31% (benchmarks/diff/results/real-in-turn.json): that much only shows in how the run's own steps drift."""

    @property
    def between(self) -> float:
        """Part by which two runs differ in nine of ten pairs."""
        return self.value

    @property
    def spread(self) -> float:
        """Standard deviation of the level of a run, as a part of it."""
        return self.value / NINE_OF_TEN / sqrt(2)


PEAKS_DIFFER: Final = 0.01
"""Part by which the peak memory of two runs of one job differs in nine of ten pairs: allocations come in another order
when threads take turns. Assumed."""


@lru_cache(maxsize=4096)
def t_quantile(confidence: float, freedom: float) -> float:
    """Return the t that includes this share of all draws, on both sides; infinite without a degree of freedom.

    >>> round(t_quantile(0.99, 10), 3), round(t_quantile(0.95, 1), 2), t_quantile(0.95, 0)
    (3.169, 12.71, inf)
    """
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2)) if freedom >= 1 else inf


def f_tail(ratio: float, above: float, below: float) -> float:
    """Return the probability that chance alone gives an F ratio of at least `ratio`; `above` and `below` are the
    degrees of freedom of numerator and denominator.

    >>> round(f_tail(4.96, 1, 10), 3), f_tail(0, 3, 10)
    (0.05, 1.0)
    """
    from scipy.special import fdtrc

    return float(fdtrc(above, below, ratio)) if ratio > 0 else 1.0


@lru_cache(maxsize=256)
def variance_bound(freedom: float, assured: float) -> float:
    """Return the factor that a variance measured with this freedom exceeds in `assured` of all cases, inverted: the
    true variance is at most so many times the measured one.

    >>> round(variance_bound(4, 0.8), 2)
    2.43
    """
    from scipy.special import chdtri

    return freedom / float(chdtri(freedom, assured))


def t_to_normal(deviates: Values, freedom: Values) -> Values:
    """Convert deviates of Student's t to normal deviates of about the same probability (Wallace 1959).

    A fleet converts millions; SciPy's exact distribution takes 30 times as long, and differs by at most 2.1%.

    >>> t_to_normal(np.array([-2.228, 0.0, 2.228]), np.array(10.0)).round(2) + 0.0
    array([-1.96,  0.  ,  1.96])
    """
    freedom = np.maximum(freedom, 0.5)
    size = np.sqrt(freedom * np.log1p(deviates**2 / freedom)) * (8 * freedom + 1) / (8 * freedom + 3)
    return np.asarray(np.copysign(size, deviates))


def log_chi_square(freedom: Values) -> tuple[Values, Values]:
    """Return the mean and the variance of the logarithm of a variance that was measured with this freedom and is 1."""
    from scipy.special import digamma, polygamma

    half = freedom / 2
    return np.asarray(digamma(half) - np.log(half)), np.asarray(polygamma(1, half))


def mann_whitney_tail(above: float, first: int, second: int) -> float:
    """Return the probability of a Mann-Whitney U this large by chance; exact if each value of the first sample is above
    all of the second, otherwise by the normal approximation.

    >>> mann_whitney_tail(4, 2, 2), round(mann_whitney_tail(75, 10, 10), 2)
    (0.16666666666666666, 0.03)
    """
    if above == first * second:
        return 1 / comb(first + second, first)
    deviation = sqrt(first * second * (first + second + 1) / 12)
    return erfc((above - first * second / 2 - 0.5) / deviation / sqrt(2)) / 2


def fisher_tail(hits: int, drawn: int, marked: int, whole: int) -> float:
    """Return the probability that `drawn` of `whole` include at least `hits` of the `marked` (Fisher's exact test).

    >>> fisher_tail(2, 2, 2, 4)
    0.16666666666666666
    """
    ways = sum(
        comb(marked, count) * comb(whole - marked, drawn - count) for count in range(hits, min(marked, drawn) + 1)
    )
    return ways / comb(whole, drawn)


def trend(values: Values) -> tuple[float, float]:
    """Return Kendall's tau of values with their order, from -1 to 1, and the probability that they rise this much by
    chance (Mann-Kendall, one-sided, normal approximation); of many values, of the means of blocks.

    >>> trend(np.arange(9.0))[0], trend(np.arange(20.0))[1] < 1e-6, round(trend(np.array([1.0, 2.0] * 10))[1], 1)
    (1.0, True, 0.4)
    """
    means = np.array([block.mean() for block in np.array_split(values, min(values.size, _MOST_BLOCKS))])
    count = means.size
    signs = float(np.triu(np.sign(means[None, :] - means[:, None]), 1).sum())
    spread = sqrt(count * (count - 1) * (2 * count + 5) / 18)
    return signs / (count * (count - 1) / 2), erfc((signs - np.sign(signs)) / spread / sqrt(2)) / 2


def effective_steps(times: Values) -> float:
    """Return how many independent steps would know the mean as well as these do.

    That is their number over the integrated autocorrelation time (initial monotone sequence; Geyer, Statistical Science
    7, 1992), which removing the mean makes too small by as many parts as the series has.

    >>> round(effective_steps(np.repeat(np.random.default_rng(0).normal(size=100), 10)))
    75
    """
    count, together = times.size, _correlations(times)
    if count < _FEWEST or not together.size:
        return float(count)
    pairs = together[: together.size // 2 * 2].reshape(-1, 2).sum(axis=1)
    ends = np.flatnonzero(pairs <= 0)
    lasting = np.minimum.accumulate(pairs[: ends[0] if ends.size else pairs.size])
    time = max(2 * float(lasting.sum()) - 1, _LEAST_TIME)
    return count / (time / (1 - min(time / count, 0.5)))


def without_period(times: Values) -> Values:
    """Return the times without what comes back every so many steps, such as a checkpoint: each step as if it were an
    average one of its period. Their mean is that of whole periods: one more checkpoint in the last part of a period
    makes no job slower.

    >>> without_period(np.array([1.0, 1, 1, 4] * 6)).tolist() == [1.75] * 24
    True
    """
    together = _correlations(times)[: times.size // _FEWEST_BEATS + 1]
    if together.size <= 2:
        return times
    period = int(together[2:].argmax()) + 2
    if together[period] < _PERIODIC or together[1:period].min() > together[period] / 2:
        return times
    phase = np.arange(times.size) % period
    usual = np.bincount(phase, times) / np.bincount(phase)
    return np.asarray(times - usual[phase] + usual.mean())


def _correlations(times: Values) -> Values:
    """Return the autocorrelations at lags from 0 to half the series; empty if all steps are alike."""
    off = times - times.mean()
    size = 1 << (2 * off.size - 1).bit_length()
    together: Values = np.fft.irfft(np.abs(np.fft.rfft(off, size)) ** 2, size)[: off.size // 2 + 1]
    return np.asarray(together / together[0]) if off.any() else together[:0]
