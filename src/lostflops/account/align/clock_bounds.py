"""Certified bounds of each clock: no barrier ends on any rank before every rank has started it.

All members of a meeting share an instant between its latest start and its earliest end, so
    start_j + offset_j <= instant <= end_i + offset_i
bounds the difference of any two offsets. So does a message, which arrives after it was sent. Bounds are followed
through all meetings to the reference: shortest paths in a graph of clocks and meetings.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from lostflops.account.align.calls import BARRIERS, Codes, CollectiveCalls, Flags
from lostflops.account.align.common_clock import ClockMembers, Clocks, Floats, Readings
from lostflops.account.align.match import Channel, Matched
from lostflops.account.align.sequences import MOST_DRIFT

_MOST_SWEEPS: Final = 1_000
_ROUNDING: Final = 2.0
_TRUSTED: Final = 0.75
"""Share of a clock's records that must not contradict each other."""


class Bounds:
    """Latest starts and earliest ends of each clock in each meeting, relative to the estimated clocks."""

    def __init__(self, matched: Matched, channels: ClockMembers, guess: Clocks, readings: Readings) -> None:
        self._clocks = int(guess.clock.max(initial=-1)) + 1
        self.skew = np.zeros(self._clocks)
        self._drift = np.zeros(self._clocks)
        # The home clock's too: where the estimate of another one is far off, so are its times from the instant.
        self._drift[guess.clock] = MOST_DRIFT + np.abs(guess.drift)
        self._usable = matched.calls.having(BARRIERS)
        self.counts = np.zeros(guess.ranks.size, np.int64)
        parts = [part for part in (self._of(matched.calls, guess, *one) for one in channels) if part is not None]
        parts += self._of_readings(readings, guess)
        for clock, starts, ends in parts:
            np.maximum.at(self.skew, clock, np.where(starts > ends, starts - ends, 0.0).max(axis=1, initial=0.0))
        self._starts, self._ends, self._meetings = self._flat(parts)

    def _of(
        self, calls: CollectiveCalls, guess: Clocks, channel: Channel, places: Codes
    ) -> tuple[Codes, Floats, Floats] | None:
        """Return clocks, and per clock and meeting the latest start and the earliest end; infinite if there is none.

        None if no call bounds a clock.
        """
        rows = channel.rows
        binds = (rows >= 0) & (True if channel.is_p2p else self._usable[rows])
        binds &= binds.sum(axis=0) > 1
        binds &= (guess.tied[places])[:, np.newaxis]
        if not binds.any():
            return None
        self.counts[places] += binds.sum(axis=1)
        place = np.broadcast_to(places[:, np.newaxis], rows.shape)
        starts = np.where(binds, guess.to_reference(place, calls.start[rows]) - guess.instant, -np.inf)
        ends = np.where(binds, guess.to_reference(place, calls.stop[rows]) - guess.instant, np.inf)
        if channel.is_p2p:
            starts[1], ends[0] = -np.inf, np.inf
        order = np.argsort(guess.clock[places], kind="stable")
        clock = guess.clock[places][order]
        edges = np.flatnonzero(np.diff(clock, prepend=-1))
        return clock[edges], np.maximum.reduceat(starts[order], edges), np.minimum.reduceat(ends[order], edges)

    def _of_readings(self, readings: Readings, guess: Clocks) -> list[tuple[Codes, Floats, Floats]]:
        """Return bounds from readings: transfers with only the sender's start and the receiver's end known."""
        known = np.isin(readings.rank, guess.ranks) & np.isin(readings.sender, guess.ranks)
        to, of = guess.place(readings.rank[known]), guess.place(readings.sender[known])
        arrived = guess.to_reference(to, readings.arrived[known]) - guess.instant
        sent = guess.to_reference(of, readings.sent[known]) - guess.instant
        binds = guess.tied[to] & guess.tied[of] & (guess.clock[to] != guess.clock[of])
        np.add.at(self.counts, to[binds], 1)
        return [
            (
                np.array([guess.clock[of[i]], guess.clock[to[i]]]),
                np.array([[float(sent[i])], [-np.inf]]),
                np.array([[np.inf], [float(arrived[i])]]),
            )
            for i in np.flatnonzero(binds).tolist()
        ]

    def _flat(
        self, parts: list[tuple[Codes, Floats, Floats]]
    ) -> tuple[tuple[Codes, Codes, Floats], tuple[Codes, Codes, Floats], int]:
        """Return starts and ends as lists of meeting, clock and time, already widened by possible drift and skew."""
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
        return _concat_rows(starts), _concat_rows(ends), first

    def follow(self, home: int, *, times_count: bool = True) -> tuple[Floats, Floats, bool]:
        """Return the least and the largest correction of each clock (home clock: 0), and whether the bounds agree.

        Without `times_count`, finite corrections only show which clocks are bounded at all.
        """
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
        """Leave out meetings that the estimate contradicts: calls that were wrongly matched.

        A clock that loses a quarter of its records is left out as well: it is unknown which of them were right.
        """
        latest, earliest = np.full(self._meetings, -np.inf), np.full(self._meetings, np.inf)
        np.maximum.at(latest, self._starts[0], self._starts[2])
        np.minimum.at(earliest, self._ends[0], self._ends[2])
        possible, before = latest <= earliest, self._records()
        self._starts, self._ends = (_select_rows(rows, possible[rows[0]]) for rows in (self._starts, self._ends))
        trusted = self._records() > _TRUSTED * before
        trusted[home] = True
        self._starts, self._ends = (_select_rows(rows, trusted[rows[1]]) for rows in (self._starts, self._ends))

    def _records(self) -> Codes:
        """Count the records of each clock."""
        return np.bincount(np.concatenate((self._starts[1], self._ends[1])), minlength=self._clocks)


def _concat_rows(parts: list[tuple[Codes, Codes, Floats]]) -> tuple[Codes, Codes, Floats]:
    none = np.empty(0, np.int64)
    columns = [(none, none, np.empty(0)), *parts]
    return (
        np.concatenate([meeting for meeting, _, _ in columns]),
        np.concatenate([clock for _, clock, _ in columns]),
        np.concatenate([time for _, _, time in columns]),
    )


def _select_rows(rows: tuple[Codes, Codes, Floats], chosen: Flags) -> tuple[Codes, Codes, Floats]:
    return rows[0][chosen], rows[1][chosen], rows[2][chosen]
