"""Periods in the times of all steps: slow steps that come back every so many steps.

Steps of one phase of a period (every 5th, say) are compared with all other steps: by their order (Mann-Whitney), and by
how many are slow (Fisher). Neither depends on size, so a stall of a shared machine counts as one step. All periods from
2 steps to a third of the steps are tried, at most `LONGEST`, and the result is corrected for their number (Bonferroni).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.account.pace.blocks import TRIMMED, Times
from lostflops.core.stats import fisher_tail, mann_whitney_tail

Steps = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

MOST_STEPS: Final = 1000
"""Most steps that are searched."""
LONGEST: Final = 100
"""Longest period that is tried, in steps."""
_FEWEST: Final = 3
"""Fewest slow steps that make a period."""
_PROVEN: Final = 0.005
"""A period counts if its p-value, corrected for the number of periods tried, is at most this."""
_PROVEN_IF_LARGE: Final = 0.02
"""The same if each slow step is slower than all others, and far slower."""
_LARGE: Final = 0.5
"""Part of a usual step by which a slow step must exceed it to be far slower."""
_SEEN: Final = 0.8
"""Part of the steps of the phase that must be slower than usual, by at least half of the excess."""


@dataclass(frozen=True, slots=True)
class Rhythm:
    """A period at which slow steps come back; times are in ns."""

    period: int
    phase: int
    """Number of a slow step modulo the period."""
    is_slow: Flags
    """Steps of the slow phase, in the order of the times."""
    excess: float
    """By how much a slow step exceeds the others, by medians."""
    usual: float
    """Location of the other steps."""
    p_value: float
    """Probability of such a period in steps without one, corrected for the number of periods tried."""

    @property
    def share(self) -> float:
        """Part of all time that slow steps take in excess; single stalls do not count as time."""
        lost = self.excess * float(self.is_slow.sum())
        return lost / (lost + self.usual * self.is_slow.size)


def find_rhythm(step: Steps, times: Times) -> Rhythm | None:
    """Return the clearest period of the steps, or None.

    >>> step = np.arange(40)
    >>> noisy = 10.0 + np.random.default_rng(0).random(40) * 0.06
    >>> made = find_rhythm(step, noisy + 5 * (step % 2))
    >>> (made.period, round(made.excess, 1)) if made else None
    (2, 5.0)
    >>> find_rhythm(step, noisy + 50 * (step == 20)) is None
    True
    """
    places = rank_of(times)
    longest = min(step.size // _FEWEST, LONGEST)
    tried = max((longest * (longest + 1)) // 2 - 1, 1)
    best: Rhythm | None = None
    for period in range(2, longest + 1):
        phase = step % period
        counts = np.bincount(phase, minlength=period)
        above = np.bincount(phase, weights=places, minlength=period) - counts * (counts + 1) / 2
        likely = int((above / np.maximum(counts * (step.size - counts), 1)).argmax())
        made = _test_rhythm(times, phase == likely, (period, likely), float(above[likely]), tried)
        if made is not None and (best is None or made.p_value < best.p_value):
            best = made
    return best


def rank_of(times: Times) -> Times:
    """Return the place of each time in their order, from 1; equal ones share the mean."""
    _, at, count = np.unique(times, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    found: Times = (last - (count - 1) / 2)[at]
    return found


def _test_rhythm(times: Times, is_slow: Flags, beat: tuple[int, int], above: float, tried: int) -> Rhythm | None:
    """Return the rhythm if it is proven; `beat` is period and phase, `above` the Mann-Whitney U of the slow steps."""
    slow, others = times[is_slow], times[~is_slow]
    if min(slow.size, others.size) < _FEWEST:
        return None
    usual, middle = typical_of(others), float(np.median(others))
    excess = float(np.median(slow)) - middle
    limit = middle + excess / 2
    if excess <= 0 or np.mean(slow > limit) < _SEEN:
        return None
    hits = int((slow > limit).sum())
    chance = (
        2
        * tried
        * min(
            mann_whitney_tail(above, slow.size, others.size),
            fisher_tail(hits, slow.size, hits + int((others > limit).sum()), times.size),
        )
    )
    is_large = above == slow.size * others.size and excess >= _LARGE * usual
    if chance > (_PROVEN_IF_LARGE if is_large else _PROVEN):
        return None
    return Rhythm(*beat, is_slow, excess, usual, chance)


def typical_of(times: Times) -> float:
    """Return the location of times without its error, which takes longer to find."""
    cut = int(TRIMMED * times.size)
    return float(np.sort(times)[cut : times.size - cut].mean())
