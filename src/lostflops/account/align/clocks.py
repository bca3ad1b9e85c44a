"""Clock offsets of ranks from the reference, each with its bounds.

Collectives bound every offset (`clock_bounds`), which gives each a certified interval. Inside it, the estimate is the
offset at which the ends of its collectives agree with those of the other ranks (`clock_estimate`). Ranks of one host
share a clock; a rank whose host is unknown has a clock of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import inf
from typing import Final

import numpy as np

from lostflops.account.align.calls import Codes, CollectiveCalls, Flags
from lostflops.account.align.clock_bounds import Bounds
from lostflops.account.align.clock_estimate import SAMPLE, at, estimate, refine_clocks
from lostflops.account.align.common_clock import ClockMembers, Clocks, Floats, Readings, middle_of
from lostflops.account.align.match import Matched

REFERENCE: Final = "reference"
SAME_HOST: Final = "same host"
COLLECTIVES: Final = "collectives"
UNTIED: Final = "untied"
CONTRADICTORY: Final = "contradictory"
_COLLECTIVE: Final = 1_000_000
"""Weight of a collective when the busiest channel of a rank is chosen: any number of collectives comes before sends."""
_FEWEST_PROMPT: Final = 8
"""Sends ending before their receive that are needed to estimate the clock error between two hosts."""


def clocks(matched: Matched, ranks: Codes, hosts: Mapping[int, str | None], readings: Readings | None = None) -> Clocks:
    """Estimate the clock of each rank, with bounds; `ranks` are in ascending order."""
    own = _clock_of(ranks, hosts)
    channels = ClockMembers(matched, ranks)
    component = _components(own, channels)
    counts = np.bincount(component)
    home = component == component[np.argmax(counts[component])] if ranks.size else np.zeros(0, np.bool_)
    first = int(np.argmax(home)) if ranks.size else 0
    shifts = estimate(matched, own, channels, int(own[first]))
    instant = _middle(matched.calls, int(ranks[first]))
    offset, drift = at(shifts, own, instant)
    guess = Clocks(
        ranks=ranks,
        reference=int(ranks[first]),
        instant=instant,
        method=("",) * ranks.size,
        offset=offset,
        uncertainty=np.where(np.isin(own, np.array(sorted(shifts))), 0.0, np.inf),
        drift=drift,
        spread=np.zeros(ranks.size),
        clock=own,
        constraints=np.zeros(ranks.size, np.int64),
    )
    return _bound_clocks(matched, channels, guess, readings or Readings.none())


def _clock_of(ranks: Codes, hosts: Mapping[int, str | None]) -> Codes:
    names = [hosts.get(rank) or rank for rank in ranks.tolist()]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names], np.int64)


def _components(own: Codes, channels: ClockMembers) -> Codes:
    """Return for each rank the number of its component: the clocks that meetings tie together."""
    label = np.arange(int(own.max(initial=-1)) + 1)
    changed = True
    while changed:
        before = label.copy()
        for _, places in channels:
            label[own[places]] = label[own[places]].min()
        label = label[label]
        changed = bool((label != before).any())
    return label[own]


def _middle(calls: CollectiveCalls, reference: int) -> int:
    rows = np.flatnonzero(calls.rank == reference)
    if not rows.size:
        return 0
    return int((int(calls.start[rows].min()) + int(calls.stop[rows].max())) // 2)


def _bound_clocks(matched: Matched, channels: ClockMembers, guess: Clocks, readings: Readings) -> Clocks:
    home = int(guess.clock[guess.place(np.array([guess.reference]))[0]]) if guess.ranks.size else 0
    bounds = Bounds(matched, channels, guess, readings)
    low, high, sound = bounds.follow(home)
    if not sound:
        guess = refine_clocks(matched, channels, guess, home)
        bounds = Bounds(matched, channels, guess, readings)
        low, high, sound = bounds.follow(home)
    bound = _both_finite(low, high)
    if not sound:
        bound = _both_finite(*bounds.follow(home, times_count=False)[:2])
        bounds.drop_impossible(home)
        # The estimate satisfies what is left.
        low, high, _ = bounds.follow(home)
    low, high = low[guess.clock], high[guess.clock]
    fine = _both_finite(low, high) & guess.tied
    correction = np.where(fine, np.clip(0.0, np.where(fine, low, 0), np.where(fine, high, 0)), 0.0)
    offset = guess.offset + np.round(correction).astype(np.int64)
    skew = bounds.skew[guess.clock]
    at_home = guess.clock == home
    widest = np.where(at_home, 0.0, np.maximum(high - correction, correction - low))
    beside = np.where(guess.ranks == guess.reference, 0.0, skew + bounds.skew[home])
    return Clocks(
        ranks=guess.ranks,
        reference=guess.reference,
        instant=guess.instant,
        method=tuple(_methods(guess, at_home, fine, bound[guess.clock])),
        offset=offset,
        uncertainty=np.where(fine, np.ceil(widest + beside), np.inf),
        drift=guess.drift,
        spread=_spreads(matched, channels, replace(guess, offset=offset)),
        clock=guess.clock,
        constraints=bounds.counts,
    )


def _both_finite(low: Floats, high: Floats) -> Flags:
    return np.isfinite(low) & np.isfinite(high)


def _methods(guess: Clocks, at_home: Flags, fine: Flags, bound: Flags) -> Iterator[str]:
    for rank, home, good, tied in zip(guess.ranks.tolist(), at_home, fine, bound, strict=True):
        if rank == guess.reference:
            yield REFERENCE
        elif home:
            yield SAME_HOST
        else:
            yield COLLECTIVES if good else CONTRADICTORY if tied else UNTIED


def _spreads(matched: Matched, channels: ClockMembers, guess: Clocks) -> Floats:
    """Return the typical distance of each rank's ends from the median of those it met, in its busiest channel."""
    spread = np.zeros(guess.ranks.size)
    busiest = np.zeros(guess.ranks.size, np.int64)
    for channel, places in channels:
        seen = channel.rows >= 0
        place = np.broadcast_to(places[:, np.newaxis], seen.shape)
        ends = guess.to_reference(place, matched.calls.stop[channel.rows]) - guess.instant
        times = np.where(seen, ends, np.nan)
        sample = np.unique(np.linspace(0, places.size - 1, min(SAMPLE, places.size)).astype(np.int64))
        distance = middle_of(np.abs(times - middle_of(times[sample].T)))
        weight = seen.sum(axis=1) * (1 if channel.is_p2p else _COLLECTIVE)
        better = weight > busiest[places]
        if channel.is_p2p:
            fewest = 1 if np.ptp(guess.clock[places]) == 0 else _FEWEST_PROMPT
            distance = np.minimum(distance, _of_prompt_sends(times, fewest))
            better |= (busiest[places] < _COLLECTIVE) & (distance < spread[places])
        spread[places[better]] = distance[better]
        busiest[places[better]] = np.maximum(weight, busiest[places])[better]
    return spread


def _of_prompt_sends(times: Floats, fewest: int) -> float:
    """Return half the median time from the end of a send to that of its receive, of sends that end first; infinite if
    fewer than `fewest` do. Later ends say nothing: gloo records a send until the program waits for it.

    >>> _of_prompt_sends(np.array([[10.0] * 8 + [900.0] * 8, [14.0] * 16]), 8)
    2.0
    """
    early = (times[1] - times[0]) / 2
    early = early[early >= 0]
    return float(np.median(early)) if early.size >= fewest else inf
