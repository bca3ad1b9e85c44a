"""One time axis for all ranks: how far each clock is from the reference's, and how far it can be at most.

A collective with the semantics of a barrier cannot end on any rank before every rank has started it. So between the
latest start and the earliest end of each meeting there is an instant that all of them share, and
    start_j + offset_j <= instant <= end_i + offset_i
bounds the difference of any two offsets. The bounds are followed through all meetings to the reference (shortest paths
in a graph of clocks and meetings), which gives each offset a certified interval. Inside it, the offset is where the
ends of its collectives meet those of the others: they end everywhere at about the same time, which is likely but not
certain. Ranks of one host share a clock; a rank whose host is not known has one of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.align.calls import BARRIERS, Calls, Codes, Flags, Ns
from lostflops.align.match import Channel, Matched
from lostflops.align.sequences import MOST_DRIFT, Shift, line

Floats = npt.NDArray[np.float64]

REFERENCE: Final = "reference"
SAME_HOST: Final = "same host"
COLLECTIVES: Final = "collectives"
UNTIED: Final = "untied"
CONTRADICTORY: Final = "contradictory"

_MOST_SWEEPS: Final = 1_000
_ROUNDING: Final = 2.0
_NEVER: Final = np.iinfo(np.int64).max
_TRUSTED: Final = 0.75
"""Share of a clock's records that must not contradict each other."""
_MOST_REFINED: Final = 2_000_000
_MOST_MOVES: Final = 32
_LEAST_MOVE: Final = 1_000.0
_PAIR: Final = 2
_SAMPLE: Final = 33
"""Members of a large group whose ends tell when a meeting ended."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """One entry per rank, in order. `offset` holds at `instant` on the reference's clock and grows by `drift` per ns;
    `spread` is how far the rank's ends typically lie from those of the ranks it met."""

    ranks: Codes
    reference: int
    instant: int
    method: tuple[str, ...]
    offset: Ns
    uncertainty: Floats
    drift: Floats
    spread: Floats
    clock: Codes
    constraints: Codes

    def place(self, ranks: Codes) -> Codes:
        return np.searchsorted(self.ranks, ranks)

    @property
    def tied(self) -> Flags:
        return np.isfinite(self.uncertainty)

    def told(self, place: Codes, times: Ns) -> Ns:
        """Times of the ranks at these places, on the reference's clock."""
        offset = self.offset[place]
        grown = self.drift[place] * (times + offset - self.instant)
        return times + offset + np.round(grown).astype(np.int64)


def clocks(matched: Matched, ranks: Codes, hosts: Mapping[int, str | None]) -> Clocks:
    """`ranks` in ascending order."""
    own = _clock_of(ranks, hosts)
    channels = _Members(matched, ranks)
    component = _components(own, channels)
    counts = np.bincount(component)
    home = component == component[np.argmax(counts[component])] if ranks.size else np.zeros(0, np.bool_)
    first = int(np.argmax(home)) if ranks.size else 0
    shifts = _estimate(matched, own, channels, int(own[first]))
    instant = _middle(matched.calls, int(ranks[first]))
    offset, drift = _at(shifts, own, instant)
    guess = Clocks(
        ranks,
        int(ranks[first]),
        instant,
        ("",) * ranks.size,
        offset,
        np.where(np.isin(own, np.array(sorted(shifts))), 0.0, np.inf),
        drift,
        np.zeros(ranks.size),
        own,
        np.zeros(ranks.size, np.int64),
    )
    return _certified(matched, channels, guess)


class _Members:
    """Channels with the places of their members among the ranks."""

    def __init__(self, matched: Matched, ranks: Codes) -> None:
        self.all = [(channel, np.searchsorted(ranks, channel.members)) for channel in matched.channels]

    def __iter__(self) -> Iterator[tuple[Channel, Codes]]:
        return iter(self.all)


def _clock_of(ranks: Codes, hosts: Mapping[int, str | None]) -> Codes:
    names = [hosts.get(rank) or rank for rank in ranks.tolist()]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names], np.int64)


def _components(own: Codes, channels: _Members) -> Codes:
    """For each rank a number of the clocks that meetings tie together."""
    label = np.arange(int(own.max(initial=-1)) + 1)
    changed = True
    while changed:
        before = label.copy()
        for _, places in channels:
            label[own[places]] = label[own[places]].min()
        label = label[label]
        changed = bool((label != before).any())
    return label[own]


def _middle(calls: Calls, reference: int) -> int:
    rows = np.flatnonzero(calls.rank == reference)
    if not rows.size:
        return 0
    return int((int(calls.start[rows].min()) + int(calls.stop[rows].max())) // 2)


def _estimate(matched: Matched, own: Codes, channels: _Members, home: int) -> dict[int, Shift]:
    """How far each clock that is tied to the home clock is ahead of it, from the ends of shared meetings."""
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
    """Give every clock in the channel a shift, against the ends that clocks with one tell."""
    if len({int(own[i]) for i in known}) == np.unique(own).size:
        return
    ends = _ends(channel, known[:_SAMPLE], own, stop, placed)
    seen = ends < _NEVER
    counts = ((channel.rows >= 0) & seen).sum(axis=1)
    for i in np.argsort(-counts, kind="stable").tolist():
        if int(own[i]) not in placed and counts[i]:
            both = (channel.rows[i] >= 0) & seen
            times = stop[channel.rows[i][both]]
            order = np.argsort(times, kind="stable")
            placed[int(own[i])] = line(times[order], (times - ends[both])[order])


def _ends(channel: Channel, members: list[int], own: Codes, stop: Ns, placed: dict[int, Shift]) -> Ns:
    """When each meeting ended by the home clock: the median of these members, the latest value where there is none."""
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


def _at(shifts: dict[int, Shift], own: Codes, instant: int) -> tuple[Ns, Floats]:
    """Offset and drift of each rank when the reference's clock shows `instant`."""
    offset, drift = np.zeros(own.size, np.int64), np.zeros(own.size)
    for place, clock in enumerate(own.tolist()):
        shift = shifts.get(clock)
        if shift is not None:
            whole = instant - shift.origin + round(shift.offset)
            elapsed = whole + round(whole * shift.drift / (1 - shift.drift))
            offset[place] = instant - shift.origin - elapsed
            drift[place] = 0.0 - shift.drift
    return offset, drift


def _certified(matched: Matched, channels: _Members, guess: Clocks) -> Clocks:
    home = int(guess.clock[guess.place(np.array([guess.reference]))[0]]) if guess.ranks.size else 0
    bounds = _Bounds(matched, channels, guess)
    low, high, sound = bounds.follow(home)
    if not sound:
        guess = _refined(matched, channels, guess, home)
        bounds = _Bounds(matched, channels, guess)
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
        guess.ranks,
        guess.reference,
        guess.instant,
        tuple(_methods(guess, at_home, fine, bound[guess.clock])),
        offset,
        np.where(fine, np.ceil(widest + beside), np.inf),
        guess.drift,
        _spreads(matched, channels, replace(guess, offset=offset)),
        guess.clock,
        bounds.counts,
    )


def _refined(matched: Matched, channels: _Members, guess: Clocks, home: int) -> Clocks:
    """The estimate with clocks moved to where most of their meetings want them, the worst first: one that was placed by
    calls that are none would make all its meetings look impossible."""
    if len(matched.calls) > _MOST_REFINED:
        return guess
    for _ in range(_MOST_MOVES):
        wanted = _wanted(matched, channels, guess)
        wanted[home] = 0.0
        worst = int(np.abs(wanted).argmax())
        if abs(wanted[worst]) < _LEAST_MOVE:
            break
        move = np.where(guess.clock == worst, round(wanted[worst]), 0)
        guess = replace(guess, offset=guess.offset + move)
    return guess


def _wanted(matched: Matched, channels: _Members, guess: Clocks) -> Floats:
    """By which the median of each clock's ends misses those of the ranks it met."""
    clocks_of: list[Codes] = [np.empty(0, np.int64)]
    misses: list[Floats] = [np.empty(0)]
    for channel, places in channels:
        seen = (channel.rows >= 0) & guess.tied[places][:, np.newaxis]
        seen &= seen.sum(axis=0) > 1
        place = np.broadcast_to(places[:, np.newaxis], seen.shape)
        times = np.where(seen, guess.told(place, matched.calls.stop[channel.rows]) - guess.instant, np.nan)
        # Of two the middle lies between them: what is missed is twice the way there.
        miss = (_middle_of(times.T) - times) * np.where(seen.sum(axis=0) == _PAIR, 2, 1)
        clocks_of.append(guess.clock[place[seen]])
        misses.append(miss[seen])
    own, values = np.concatenate(clocks_of), np.concatenate(misses)
    order = np.lexsort((values, own))
    counts = np.bincount(own, minlength=int(guess.clock.max(initial=-1)) + 1)
    first = np.cumsum(counts) - counts
    middle = np.where(counts > 0, values[order][np.minimum(first + counts // 2, max(values.size - 1, 0))], 0.0)
    return np.asarray(middle)


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


class _Bounds:
    """Latest starts and earliest ends of each clock in each meeting, as corrections of the estimate see them."""

    def __init__(self, matched: Matched, channels: _Members, guess: Clocks) -> None:
        self._clocks = int(guess.clock.max(initial=-1)) + 1
        self.skew = np.zeros(self._clocks)
        self._drift = np.zeros(self._clocks)
        # The home clock's too: where the estimate of another one is far off, so are its times from the instant.
        self._drift[guess.clock] = MOST_DRIFT + np.abs(guess.drift)
        self._usable = matched.calls.having(BARRIERS)
        self.counts = np.zeros(guess.ranks.size, np.int64)
        parts = [part for part in (self._of(matched.calls, guess, *one) for one in channels) if part is not None]
        for clock, starts, ends in parts:
            np.maximum.at(self.skew, clock, np.where(starts > ends, starts - ends, 0.0).max(axis=1, initial=0.0))
        self._starts, self._ends, self._meetings = self._flat(parts)

    def _of(self, calls: Calls, guess: Clocks, channel: Channel, places: Codes) -> tuple[Codes, Floats, Floats] | None:
        """Clocks, and per clock and meeting the latest start and the earliest end; infinite where there is none."""
        rows = channel.rows
        binds = (rows >= 0) & (True if channel.is_p2p else self._usable[rows])
        binds &= binds.sum(axis=0) > 1
        binds &= (guess.tied[places])[:, np.newaxis]
        if not binds.any():
            return None
        self.counts[places] += binds.sum(axis=1)
        place = np.broadcast_to(places[:, np.newaxis], rows.shape)
        starts = np.where(binds, guess.told(place, calls.start[rows]) - guess.instant, -np.inf)
        ends = np.where(binds, guess.told(place, calls.stop[rows]) - guess.instant, np.inf)
        if channel.is_p2p:
            starts[1], ends[0] = -np.inf, np.inf
        order = np.argsort(guess.clock[places], kind="stable")
        clock = guess.clock[places][order]
        edges = np.flatnonzero(np.diff(clock, prepend=-1))
        return clock[edges], np.maximum.reduceat(starts[order], edges), np.minimum.reduceat(ends[order], edges)

    def _flat(
        self, parts: list[tuple[Codes, Floats, Floats]]
    ) -> tuple[tuple[Codes, Codes, Floats], tuple[Codes, Codes, Floats], int]:
        """Starts and ends as lists of meeting, clock and time, with what drift and skew leave open already granted."""
        starts: list[tuple[Codes, Codes, Floats]] = []
        ends: list[tuple[Codes, Codes, Floats]] = []
        first = 0
        for clock, latest, earliest in parts:
            meetings = np.arange(first, first + latest.shape[1])
            first += latest.shape[1]
            if clock.size < 2:
                continue
            for times, sign, into in ((latest, -1.0, starts), (earliest, 1.0, ends)):
                which, where = np.nonzero(np.isfinite(times))
                held = times[which, where]
                slack = self._drift[clock[which]] * np.abs(held) + self.skew[clock[which]] + _ROUNDING
                into.append((meetings[where], clock[which], held + sign * slack))
        return _joined(starts), _joined(ends), first

    def follow(self, home: int, *, times_count: bool = True) -> tuple[Floats, Floats, bool]:
        """Least and largest correction of each clock, the home clock's being 0; and whether the bounds agree. If times
        do not count, the finite ones tell which clocks are bounded at all."""
        low, high = np.full(self._clocks, -np.inf), np.full(self._clocks, np.inf)
        if not self._clocks:
            return low, high, True
        low[home] = high[home] = 0.0
        (at, starter, start), (until, ender, end) = self._starts, self._ends
        if not times_count:
            start, end = np.zeros(start.size), np.zeros(end.size)
        for _ in range(_MOST_SWEEPS):
            latest, earliest = np.full(self._meetings, np.inf), np.full(self._meetings, -np.inf)
            np.minimum.at(latest, until, end + high[ender])
            np.maximum.at(earliest, at, start + low[starter])
            new_high, new_low = high.copy(), low.copy()
            np.minimum.at(new_high, starter, latest[at] - start)
            np.maximum.at(new_low, ender, earliest[until] - end)
            if np.array_equal(new_high, high) and np.array_equal(new_low, low):
                return low, high, True
            high, low = new_high, new_low
            if (low > high).any():
                break
        return low, high, False

    def drop_impossible(self, home: int) -> None:
        """Leave out meetings that the estimate already contradicts: calls that were taken for one and are not. A clock
        that loses a quarter of its own so is left out as well: nobody knows which were right."""
        latest, earliest = np.full(self._meetings, -np.inf), np.full(self._meetings, np.inf)
        np.maximum.at(latest, self._starts[0], self._starts[2])
        np.minimum.at(earliest, self._ends[0], self._ends[2])
        possible, before = latest <= earliest, self._records()
        self._starts, self._ends = (_kept(rows, possible[rows[0]]) for rows in (self._starts, self._ends))
        trusted = self._records() > _TRUSTED * before
        trusted[home] = True
        self._starts, self._ends = (_kept(rows, trusted[rows[1]]) for rows in (self._starts, self._ends))

    def _records(self) -> Codes:
        """Of each clock."""
        return np.bincount(np.concatenate((self._starts[1], self._ends[1])), minlength=self._clocks)


def _joined(parts: list[tuple[Codes, Codes, Floats]]) -> tuple[Codes, Codes, Floats]:
    none = np.empty(0, np.int64)
    columns = [(none, none, np.empty(0)), *parts]
    return (
        np.concatenate([meeting for meeting, _, _ in columns]),
        np.concatenate([clock for _, clock, _ in columns]),
        np.concatenate([time for _, _, time in columns]),
    )


def _kept(rows: tuple[Codes, Codes, Floats], chosen: Flags) -> tuple[Codes, Codes, Floats]:
    return rows[0][chosen], rows[1][chosen], rows[2][chosen]


def _spreads(matched: Matched, channels: _Members, guess: Clocks) -> Floats:
    """Typical distance of each rank's ends from the median of those it met; of several channels the busiest counts."""
    spread = np.zeros(guess.ranks.size)
    busiest = np.zeros(guess.ranks.size, np.int64)
    for channel, places in channels:
        seen = channel.rows >= 0
        place = np.broadcast_to(places[:, np.newaxis], seen.shape)
        ends = guess.told(place, matched.calls.stop[channel.rows]) - guess.instant
        times = np.where(seen, ends, np.nan)
        sample = np.unique(np.linspace(0, places.size - 1, min(_SAMPLE, places.size)).astype(np.int64))
        distance = np.abs(times - _middle_of(times[sample].T))
        weight = seen.sum(axis=1) * (1 if channel.is_p2p else 1_000_000)
        better = weight > busiest[places]
        spread[places[better]] = _middle_of(distance[better])
        busiest[places[better]] = weight[better]
    return spread


def _middle_of(values: Floats) -> Floats:
    """Median of each row without its unknown values; unknown where there is none."""
    ordered = np.sort(values, axis=1)
    known = np.maximum((~np.isnan(values)).sum(axis=1), 1)
    row = np.arange(values.shape[0])
    return np.asarray((ordered[row, (known - 1) // 2] + ordered[row, known // 2]) / 2)
