"""Which ranks are late, by how much, since when, and how sure? The one judge; every verb asks it.

It reads one number for each rank and step, in ns: how long the rank worked on its own, or how late it came to its
collectives. A rank is late if its mean exceeds the median of its peers (ranks that do the same work)

- by more than `SMALLEST` of a step,
- by more than the steps vary: steps are the trials, never collectives. Steps that follow each other share what disturbs
  them, so n of them count as n / `tau` (the integrated autocorrelation), and few steps cannot show that they do not,
- by more than its peers differ from each other.

Each threshold is corrected for the number of ranks. If a rank's steps change at some point, only the later ones count.
The same figures say how late a rank would have to be to be found, and how many steps would show a smaller lateness.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, log, sqrt
from statistics import NormalDist
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.core.units import format_ns, format_share, pluralise

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]

SMALLEST: Final = 0.01
"""Share of a step below which lateness is left alone: nobody can measure what its fix saves."""
CLEAR: Final = 0.03
"""Share of a step from which a rank is suspected although its steps do not prove it."""
_FALSE_ALARMS: Final = 0.005
"""Probability of naming any rank of a healthy job: half of what is promised, because no model of noise is exact."""
_OF_RANKS: Final = 0.9
"""What steps can show is said of the rank with this quantile of noise: of nearly all ranks."""
_SUSPICIOUS: Final = 0.05
_FOUND: Final = 0.95
"""Probability of finding a rank that is as late as the power calculation says."""
_UNSEEN_MEMORY: Final = 20.0
"""Steps for which a disturbance is assumed to last while too few steps were seen to know; three times as many with one
peer, whose noise cannot be separated from the rank's own."""
_SIMILAR: Final = 8
"""Peers whose noise tells as much about a rank's noise as its own steps; more of them add nothing certain."""
_OFTEN: Final = 0.4
"""Share of the steps in which a rank must be at least half as late: in fewer it was disturbed now and then."""
_FEWEST: Final = 3
_LARGE: Final = 0.15
"""Fewer steps do not show how much they vary: then only this share of a step is suspicious, and in few steps this share
in all of them."""
_IN_ALL: Final = 3.0
"""A rank is late in all steps if each shows at least its mean lateness over this: they vary, but none is usual."""
_APART: Final = 10.0
"""A rank is late in few steps if in each it is this many times as far from its peers as any of them is in any step:
disturbances that last as long as the steps make ranks differ too, but not one of them by so much more."""
_SEGMENT: Final = 8
"""Fewest steps before a change."""
_LASTING: Final = 40
"""Fewest steps since a change, twice what a disturbance is assumed to last: a burst is not a change."""
_INDEPENDENT: Final = 5.0
"""As how many independent steps those since a change must count."""
_EXACT: Final = 1e-9
"""Share of a step below which steps do not vary, but numbers are rounded."""
_FROM_MAD: Final = 1.4826


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """How much later than its peers one rank is."""

    rank: int
    ns: float
    """Mean time by which it exceeds the median of its peers, in ns per step."""
    share: float
    """The same as a part of the step."""
    error: float
    """Standard error of `ns`, from steps as trials."""
    late_steps: int
    """Number of steps that show it: those in which the rank is at least half as late."""
    steps: int
    since: int | None = None
    """First step from which on it is late; None if it always was."""
    is_late: bool = False
    is_suspected: bool = False
    """Whether it is clearly later than its peers in these steps, but not proven to be late."""
    more_steps: int | None = None
    """Steps that would settle a suspicion."""

    @property
    def in_steps(self) -> str:
        """Say in how many steps it is late."""
        whole = pluralise(self.steps, "step")
        seen = f"in all {whole}" if self.late_steps == self.steps > 1 else f"in {self.late_steps:,} of {whole}"
        return seen if self.since is None else f"{seen} since step {self.since}"

    def say(self, cause: str = "") -> str:
        """Say how late it is, in the words that every verb uses."""
        why = f": {cause}" if cause else ""
        return (
            f"Rank {self.rank} is late by {format_ns(round(self.ns))} per step ({format_share(self.share)} of a step), "
            f"{self.in_steps}{why}."
        )


@dataclass(frozen=True, slots=True)
class Power:
    """What these steps could have shown."""

    steps: int
    noise: float
    """Standard deviation of the mean of one step, as a part of the step; autocorrelation included."""
    error: float
    """Number of standard errors by which a rank must be late."""
    floor: float
    """Share of a step below which no number of steps names a rank."""

    @property
    def smallest(self) -> float:
        """Return the smallest lateness that these steps would have shown, as a part of the step."""
        return max(self.floor, (self.error + _SURELY) * self.noise / sqrt(self.steps))

    def steps_for(self, share: float) -> int | None:
        """Return the number of steps that find a rank that is late by this share; None if no number does."""
        if share <= self.floor:
            return None
        return max(ceil(((self.error + _SURELY) * self.noise / share) ** 2), _FEWEST)

    def say(self, share: float = 0.02) -> str:
        """Say what the steps could have shown."""
        needed = self.steps_for(share)
        named = format_share(share)
        if needed is None:
            return f"Peers differ too much to find a rank that is less than {format_share(self.smallest)} late."
        if needed <= self.steps:
            return f"{pluralise(needed, 'step')} suffice to find a rank that is {named} late."
        found = f"A rank that is {format_share(self.smallest)} late would have been found"
        return f"{found}; {needed:,} steps find one that is {named} late."


@dataclass(frozen=True, slots=True)
class LateVerdict:
    """Lateness of the ranks that have peers, the latest first."""

    ranks: tuple[Lateness, ...] = ()
    power: Power | None = None
    """None if no two ranks with the same work, or too few steps, were recorded."""

    @property
    def late(self) -> tuple[Lateness, ...]:
        return tuple(one for one in self.ranks if one.is_late)

    @property
    def suspected(self) -> tuple[Lateness, ...]:
        return tuple(one for one in self.ranks if one.is_suspected)

    def of(self, rank: int) -> Lateness | None:
        return next((one for one in self.ranks if one.rank == rank), None)


_SURELY: Final = NormalDist().inv_cdf(_FOUND)


def judge(
    times: Floats,
    ranks: Sequence[int],
    steps: Sequence[int],
    step_ns: float,
    cohort: Sequence[int] | None = None,
    *,
    resolution: float = 0.0,
) -> LateVerdict:
    """Judge ranks by `times`, one row for each rank and one column for each step, in ns, NaN if unknown.

    Ranks with the same number in `cohort` do the same work. Lateness below `resolution`, in ns, cannot be measured.
    """
    labels = np.zeros(len(ranks), np.int64) if cohort is None else np.asarray(cohort)
    members = [rows for label in np.unique(labels).tolist() if (rows := np.flatnonzero(labels == label)).size > 1]
    compared = sum(rows.size for rows in members)
    floor = max(SMALLEST, resolution / max(step_ns, 1.0))
    found: list[Lateness] = []
    powers: list[Power] = []
    for peers_rows in members:
        known = np.asarray(~np.isnan(times[peers_rows]))
        rows = peers_rows[known.sum(axis=1) * 2 >= known.sum(axis=1).max(initial=0)]
        whole = np.flatnonzero(~np.isnan(times[rows]).any(axis=0))
        if rows.size < 2 or not whole.size:
            continue
        peers = _Peers(times[np.ix_(rows, whole)] / max(step_ns, 1.0), floor, compared)
        numbers = [int(steps[at]) for at in whole.tolist()]
        judged = [peers.judge(place, int(ranks[row]), numbers) for place, row in enumerate(rows.tolist())]
        found += [_in_ns(one, step_ns) for one in judged]
        powers.append(peers.power(on_time=[not one.is_late for one in judged]))
    ordered = sorted(found, key=lambda one: (not one.is_late, -one.ns, one.rank))
    return LateVerdict(tuple(ordered), max(powers, key=lambda one: one.smallest) if powers else None)


def _in_ns(one: Lateness, step_ns: float) -> Lateness:
    return replace(one, ns=one.share * step_ns, error=one.error * step_ns)


@dataclass(frozen=True, slots=True)
class _Noise:
    """By how much steps vary, and how long what disturbs them lasts."""

    deviation: float
    """Standard deviation of one step, autocorrelation included: that of a mean, times the root of its steps."""
    tau: float
    """Steps that follow each other and count as one."""
    steps: int

    @property
    def trials(self) -> float:
        """Return from how many independent steps the deviation is known: about twice as many as a mean is (Bartlett,
        "On the theoretical specification and sampling properties of autocorrelated time-series", 1946)."""
        return min(2 * self.steps / self.tau, self.steps)

    @classmethod
    def of(cls, rest: Floats) -> _Noise:
        tau, steps = integrated_autocorrelation(rest), rest.shape[1]
        return cls(sqrt(float(rest.var(axis=1).mean()) * steps / max(steps - 1, 1) * tau), tau, steps)

    @classmethod
    def of_typical(cls, rest: Floats) -> _Noise:
        """Return the noise of a typical one of several ranks."""
        tau, steps = integrated_autocorrelation(rest, len(rest) - 1), rest.shape[1]
        return cls(sqrt(float(np.median(rest.var(axis=1))) * steps / max(steps - 1, 1) * tau), tau, steps)

    def at_least(self, usual: _Noise) -> _Noise:
        """Return the noise of a rank that is not quieter, and not disturbed for shorter, than its peers are."""
        tau = max(self.tau, usual.tau)
        own = self.deviation * sqrt(tau / self.tau)
        return _Noise(max(own, usual.deviation), tau, self.steps)


class _Peers:
    """Ranks that do the same work, in steps that all of them recorded; times are parts of a step."""

    def __init__(self, times: Floats, floor: float, compared: int) -> None:
        self._times, self._floor, self._compared = times, floor, compared
        self._size, self._steps = times.shape
        self._above = times - median_of_others(times)
        rest = _deviations(self._above)
        self._usual = _Noise.of_typical(rest)
        self._noises = [_Noise.of(one[np.newaxis]).at_least(self._usual) for one in rest]

    def judge(self, place: int, rank: int, numbers: Sequence[int]) -> Lateness:
        first = self._changed_at(place)
        seen = self._excess(0, place) if first else 0.0
        one = self._since(place, rank, first)
        if first and not one.is_late and 2 * one.share >= seen:
            one = self._since(place, rank, 0)
        elif first and one.is_late and 2 * float(self._above[place, :first].mean()) >= one.share:
            one, first = self._since(place, rank, 0), 0
        return replace(one, since=numbers[first]) if first and one.is_late else one

    def _since(self, place: int, rank: int, first: int) -> Lateness:
        """Judge a rank by the steps from `first` on."""
        above, steps = self._above[place, first:], self._steps - first
        share, spread = self._excess(first, place), self._spread(first, place)
        late_steps = int((above >= share / 2).sum()) if share > 0 else 0
        usual = _Noise.of_typical(_deviations(self._above[:, first:])) if first else self._usual
        noise = _Noise.of(_deviations(above[np.newaxis])).at_least(usual) if first else self._noises[place]
        error = noise.deviation / sqrt(steps)
        looks = self._compared * (self._steps if first else 1)
        if late_steps == steps >= log(looks / _FALSE_ALARMS):
            # By chance, all of n steps are so far above the peers with a probability of less than exp(-n), be their
            # noise normal, uniform or Student's t: how much they vary is then no reason to doubt that the rank is late.
            noise = usual
        unsure = noise.deviation / sqrt(steps)
        proven = share >= max(self._floor, self._quantile(_FALSE_ALARMS / looks, noise) * unsure, spread)
        clear = CLEAR if steps >= _FEWEST else _LARGE
        likely = share >= max(clear, self._floor, self._quantile(_SUSPICIOUS / looks, noise) * unsure, spread)
        is_late = proven and steps >= _FEWEST and late_steps >= _OFTEN * steps
        in_all = bool(above.min() >= share / _IN_ALL) and share >= max(_LARGE, self._floor, spread)
        # Few steps that vary, or last, do not show by how much: only peers that hardly differ do.
        is_apart = in_all and bool(above.min() >= _APART * self._most_apart(first, place))
        is_late = is_late or (is_apart and steps > _FEWEST)
        is_suspected = not is_late and (likely or (in_all and steps >= _FEWEST))
        needed = self.power(noise.deviation).steps_for(share) if is_suspected else None
        if is_suspected and is_apart:
            needed = steps + 1
        return Lateness(
            rank=rank,
            ns=0.0,
            share=share,
            error=error,
            late_steps=late_steps,
            steps=steps,
            is_late=is_late,
            is_suspected=is_suspected,
            more_steps=None if needed is None else max(needed - steps, 1),
        )

    def _excess(self, first: int, place: int) -> float:
        means = self._times[:, first:].mean(axis=1)
        return float(means[place] - np.median(np.delete(means, place)))

    def _most_apart(self, first: int, place: int) -> float:
        """Return by how much any peer differs from the others in any step; infinite with too few to know."""
        peers = np.delete(self._times[:, first:], place, axis=0)
        return float(np.abs(peers - np.median(peers, axis=0)).max()) if len(peers) >= _FEWEST else inf

    def _spread(self, first: int, place: int) -> float:
        """Return by how much a rank must exceed its peers because these differ from each other."""
        means = np.delete(self._times[:, first:].mean(axis=1), place)
        if means.size < _FEWEST:
            return 0.0
        deviation = _FROM_MAD * float(np.median(np.abs(means - np.median(means))))
        return NormalDist().inv_cdf(1 - _FALSE_ALARMS / self._compared) * deviation

    def _quantile(self, chance: float, noise: _Noise) -> float:
        """Return the number of standard errors that chance alone exceeds with this probability."""
        from scipy.special import stdtrit  # noqa: PLC0415 - half a second that `watch` need not spend at its start

        return float(stdtrit(max(noise.trials - 1, 1.0) * min(self._size - 1, _SIMILAR), 1 - chance))

    def _changed_at(self, place: int) -> int:
        """Return the place of the first step from which on the rank differs from before; 0 if it does not."""
        above, steps = self._above[place], self._steps
        if steps < _SEGMENT + _LASTING:
            return 0
        cut = np.arange(_SEGMENT, steps - _LASTING + 1)
        sums = np.cumsum(above)
        before, after = sums[cut - 1] / cut, (sums[-1] - sums[cut - 1]) / (steps - cut)
        moved = np.abs(after - before) / np.sqrt(1 / cut + 1 / (steps - cut))
        best = int(moved.argmax())
        first = int(cut[best])
        noise = _Noise.of(_deviations(above[np.newaxis], first))
        chance = _FALSE_ALARMS / (self._compared * steps)
        if moved[best] < self._quantile(chance, noise) * noise.deviation:
            return 0
        noise = noise.at_least(_Noise.of_typical(_deviations(self._above, first)))
        lasts = (steps - first) / noise.tau >= _INDEPENDENT
        return first if lasts and moved[best] >= self._quantile(chance, noise) * noise.deviation else 0

    def power(self, noise: float | None = None, on_time: Sequence[bool] | None = None) -> Power:
        """Return what the steps can show of a rank with this noise, else of those that are on time: by how much the
        lateness of a late rank varies says nothing about the others."""
        steps = self._steps
        noises = [one.deviation for place, one in enumerate(self._noises) if on_time is None or on_time[place]]
        usual = float(np.quantile(noises or [self._usual.deviation], _OF_RANKS))
        error = self._quantile(_FALSE_ALARMS / self._compared, self._usual)
        spread = float(np.median([self._spread(0, place) for place in range(min(self._size, _SIMILAR))]))
        floor = self._floor if spread <= 2 * error * usual / sqrt(steps) else max(self._floor, spread)
        return Power(steps, usual if noise is None else noise, error, floor)


def _deviations(above: Floats, cut: int = 0) -> Floats:
    """Return the deviations of each series (row) from its mean, or from its means before and after the cut."""
    parts = (above[:, :cut], above[:, cut:]) if cut else (above,)
    return np.concatenate([part - part.mean(axis=1, keepdims=True) for part in parts], axis=1)


def median_of_others(times: Floats) -> Floats:
    """Return for each rank (row) and step (column) the median of the other ranks.

    >>> median_of_others(np.array([[1.0], [2.0], [4.0]])).ravel().tolist()
    [3.0, 2.5, 1.5]
    """
    order = times.argsort(axis=0)
    ordered = np.take_along_axis(times, order, axis=0)
    place = order.argsort(axis=0)
    others = times.shape[0] - 1
    low, high = (others - 1) // 2, others // 2
    lower = np.where(low < place, ordered[low], ordered[low + 1])
    upper = np.where(high < place, ordered[high], ordered[high + 1])
    return np.asarray((lower + upper) / 2)


def integrated_autocorrelation(rest: Floats, peers: int = 3) -> float:
    """Return how many steps that follow each other count as one, from deviations of one or more series (rows).

    Sums the autocorrelations of all series up to the first pair of lags whose sum is not positive (Geyer, "Practical
    Markov chain Monte Carlo", 1992), corrected for what subtracting the mean takes from them.

    `effective_steps` in core/stats estimates the same for one series, whose error it serves. Here a wrong estimate
    accuses a rank, so it joins the series of all ranks, and assumes what too few steps cannot show.
    """
    steps = int(rest.shape[1])
    memory = _UNSEEN_MEMORY * max(3.0 / max(peers, 1), 1.0)
    if steps < 2:
        return 1.0 + memory
    least = 1.0 + memory / steps
    size = 1 << (2 * steps - 1).bit_length()
    power = np.abs(np.fft.rfft(rest, size, axis=1)) ** 2
    covariance = np.fft.irfft(power.mean(axis=0), size)[: max(steps // 2, 1)] / steps
    if covariance[0] <= _EXACT**2:
        return least
    tau = least
    for _ in range(3):
        lost = covariance[0] * tau / steps
        lags = (covariance / (1 - np.arange(covariance.size) / steps) + lost) / (covariance[0] + lost)
        pairs = lags[: lags.size // 2 * 2].reshape(-1, 2).sum(axis=1)
        ends = np.flatnonzero(pairs <= 0)
        tau = max(2 * float(pairs[: ends[0] if ends.size else pairs.size].sum()) - 1, least)
        tau = min(tau, float(steps))
    return float(tau)
