"""Estimated offset of each clock: with it, the ends of its collectives agree with those of the other ranks.

A collective ends on all ranks at about the same time, which is likely but not certain.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from lostflops.account.align.calls import Codes, Ns
from lostflops.account.align.common_clock import ClockMembers, Clocks, Floats, middle_of
from lostflops.account.align.match import Channel, Matched
from lostflops.account.align.sequences import Shift, line

_NEVER: Final = np.iinfo(np.int64).max
_MOST_REFINED: Final = 2_000_000
_MOST_MOVES: Final = 32
_LEAST_MOVE: Final = 1_000.0
_PAIR: Final = 2
SAMPLE: Final = 33
"""Number of members of a large group whose ends show when a meeting ended."""


def estimate(matched: Matched, own: Codes, channels: ClockMembers, home: int) -> dict[int, Shift]:
    """Estimate how far each clock that is tied to the home clock is ahead of it, from the ends of shared meetings."""
    stop = matched.calls.stop
    placed = {home: Shift(0.0, 0.0, 0)}
    order = sorted(channels, key=lambda pair: (pair[0].is_p2p, -pair[0].members.size))
    waiting, progress = order, True
    while waiting and progress:
        progress, later = False, []
        for channel, places in waiting:
            known = [i for i, clock in enumerate(own[places].tolist()) if clock in placed]
            if not known:
                later.append((channel, places))
                continue
            progress = True
            _place(channel, own[places], known, stop, placed)
        waiting = later
    return placed


def _place(channel: Channel, own: Codes, known: list[int], stop: Ns, placed: dict[int, Shift]) -> None:
    """Give every clock in the channel a shift, compared with the ends by clocks that already have one."""
    if len({int(own[i]) for i in known}) == np.unique(own).size:
        return
    ends = _ends(channel, known[:SAMPLE], own, stop, placed)
    seen = ends < _NEVER
    counts = ((channel.rows >= 0) & seen).sum(axis=1)
    for i in np.argsort(-counts, kind="stable").tolist():
        if int(own[i]) not in placed and counts[i]:
            both = (channel.rows[i] >= 0) & seen
            times = stop[channel.rows[i][both]]
            order = np.argsort(times, kind="stable")
            placed[int(own[i])] = line(times[order], (times - ends[both])[order])


def _ends(channel: Channel, members: list[int], own: Codes, stop: Ns, placed: dict[int, Shift]) -> Ns:
    """Return when each meeting ended by the home clock: the median of these members, `_NEVER` if none recorded it."""
    rows = channel.rows[members]
    times = np.stack(
        [
            np.where(row >= 0, placed[int(own[i])].remove(stop[row]), _NEVER)
            for i, row in zip(members, rows, strict=True)
        ]
    )
    times.sort(axis=0)
    seen = (rows >= 0).sum(axis=0)
    middle = np.maximum(seen - 1, 0) // 2
    return np.asarray(times[middle, np.arange(times.shape[1])])


def at(shifts: dict[int, Shift], own: Codes, instant: int) -> tuple[Ns, Floats]:
    """Return offset and drift of each rank when the reference's clock shows `instant`."""
    offset, drift = np.zeros(own.size, np.int64), np.zeros(own.size)
    for place, clock in enumerate(own.tolist()):
        shift = shifts.get(clock)
        if shift is not None:
            whole = instant - shift.origin + round(shift.offset)
            elapsed = whole + round(whole * shift.drift / (1 - shift.drift))
            offset[place] = instant - shift.origin - elapsed
            drift[place] = 0.0 - shift.drift
    return offset, drift


def refine_clocks(matched: Matched, channels: ClockMembers, guess: Clocks, home: int) -> Clocks:
    """Move clocks to where most of their meetings want them, the worst first.

    A clock that was placed by wrongly matched calls would make all its meetings look impossible.
    """
    if len(matched.calls) > _MOST_REFINED:
        return guess
    for _ in range(_MOST_MOVES):
        wanted = _compute_corrections(matched, channels, guess)
        wanted[home] = 0.0
        worst = int(np.abs(wanted).argmax())
        if abs(wanted[worst]) < _LEAST_MOVE:
            break
        move = np.where(guess.clock == worst, round(wanted[worst]), 0)
        guess = replace(guess, offset=guess.offset + move)
    return guess


def _compute_corrections(matched: Matched, channels: ClockMembers, guess: Clocks) -> Floats:
    """Return by how much the median of each clock's ends misses those of the ranks it met."""
    clocks_of: list[Codes] = [np.empty(0, np.int64)]
    misses: list[Floats] = [np.empty(0)]
    for channel, places in channels:
        seen = (channel.rows >= 0) & guess.tied[places][:, np.newaxis]
        seen &= seen.sum(axis=0) > 1
        place = np.broadcast_to(places[:, np.newaxis], seen.shape)
        times = np.where(seen, guess.to_reference(place, matched.calls.stop[channel.rows]) - guess.instant, np.nan)
        # Of two the middle lies between them: what is missed is twice the way there.
        miss = (middle_of(times.T) - times) * np.where(seen.sum(axis=0) == _PAIR, 2, 1)
        clocks_of.append(guess.clock[place[seen]])
        misses.append(miss[seen])
    own, values = np.concatenate(clocks_of), np.concatenate(misses)
    order = np.lexsort((values, own))
    counts = np.bincount(own, minlength=int(guess.clock.max(initial=-1)) + 1)
    first = np.cumsum(counts) - counts
    middle = np.where(counts > 0, values[order][np.minimum(first + counts // 2, max(values.size - 1, 0))], 0.0)
    return np.asarray(middle)
