"""Waits of each rank in each meeting, and the rank that it waited for: rows of table `arrivals`.

A rank waits from its start until the last recorded rank has started, on the common clock. A wait counts as 0 unless it
is longer than `RESOLUTION` times the typical distance between the ends of the ranks. If clocks cannot be compared, the
rank with the shortest call is assumed to be the last, and the others waited for as long as their calls took longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lostflops.account.align.calls import ROWS_AT_ONCE, Codes, CollectiveCalls, Flags, Ns
from lostflops.account.align.common_clock import Clocks
from lostflops.account.align.match import Channel, Matched
from lostflops.account.facts.clock_error import RESOLUTION

BASES: Final = (None, "clock", "ends", "shortest")
_CLOCK, _ENDS, _SHORTEST = 1, 2, 3
UNKNOWN: Final = np.int64(np.iinfo(np.int64).min)
"""Unknown number, of 64 bits: a plain integer would be cut to the type of a column, and become 0 in one of 32 bits."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Columns of table `arrivals`, in order of rank; unknown numbers are the smallest integer."""

    rank: Codes
    event: Codes
    meeting: Codes
    is_transfer: Flags
    step: Codes
    expected: Codes
    seen: Codes
    arrived: Ns
    wait: Ns
    late_rank: Codes
    basis: Codes
    """Index into `BASES`."""


def arrivals(matched: Matched, clocks: Clocks) -> Iterator[Arrivals]:
    """Yield some ranks at a time, so that ten million rows are never all in memory."""
    meetings, first = [], 0
    for channel in matched.channels:
        meetings.append(_WaitMeetings(matched.calls, channel, clocks, first))
        first += channel.rows.shape[1]
    rows = np.bincount(clocks.place(matched.calls.rank), minlength=clocks.ranks.size)
    stretch = np.cumsum(rows) // ROWS_AT_ONCE
    parts: dict[int, list[tuple[_WaitMeetings, Codes]]] = {number: [] for number in np.unique(stretch).tolist()}
    for one in meetings:
        own = stretch[one.places]
        for number in np.unique(own).tolist():
            parts[number].append((one, np.flatnonzero(own == number)))
    for members in parts.values():
        yield _concat_arrivals([one.rows(chosen) for one, chosen in members])


def _concat_arrivals(parts: list[tuple[npt.NDArray[Any], ...]]) -> Arrivals:
    if not parts:
        none = np.empty(0, np.int64)
        return Arrivals(none, none, none, np.empty(0, np.bool_), *(none,) * 7)
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    return Arrivals(*(column[order] for column in columns))


class _WaitMeetings:
    """Meetings of one channel: who was last in each, when, and whether any rank waited."""

    def __init__(self, calls: CollectiveCalls, channel: Channel, clocks: Clocks, first: int) -> None:
        self._calls, self._channel, self._clocks, self._first = calls, channel, clocks, first
        self.places = clocks.place(channel.members)
        self._tied = bool(clocks.tied[self.places].all())
        seen = channel.rows >= 0
        self._seen = seen.sum(axis=0)
        self._step = np.where(seen, calls.step[channel.rows], -1).max(axis=0)
        everyone = np.arange(channel.members.size)
        if self._tied:
            arrived = np.where(seen, self._align_starts(everyone), UNKNOWN)
            self._late = arrived.argmax(axis=0)
            self._last = arrived.max(axis=0)
        else:
            length = np.where(seen, self._length(everyone), np.iinfo(np.int64).max)
            self._late = length.argmin(axis=0)
            self._last = length.min(axis=0)
        waited = (self._wait(everyone) > 0).any(axis=0)
        self._named = np.where(waited, channel.members[self._late], UNKNOWN)

    def rows(self, members: Codes) -> tuple[npt.NDArray[Any], ...]:
        """Return the columns of `arrivals` for some members, one after the other."""
        calls, channel, count = self._calls, self._channel, self._seen.size
        rows = channel.rows[members]
        seen = rows >= 0
        tied = self._clocks.tied[self.places[members]][:, np.newaxis]

        def of_meeting(values: Codes) -> Codes:
            return np.tile(values, members.size)

        def where_seen(values: Codes) -> Codes:
            return np.where(seen, values, UNKNOWN).ravel()

        return (
            np.repeat(channel.members[members], count),
            where_seen(calls.event[rows]),
            of_meeting(self._first + np.arange(count)),
            np.full(rows.size, channel.is_p2p),
            of_meeting(np.where(self._step >= 0, self._step, UNKNOWN)),
            np.full(rows.size, channel.expected if channel.expected > 0 else UNKNOWN),
            of_meeting(self._seen),
            where_seen(np.where(tied, self._align_starts(members), UNKNOWN)),
            where_seen(self._wait(members)),
            of_meeting(self._named),
            np.where(seen, self._basis(members), 0).ravel(),
        )

    def _basis(self, members: Codes) -> Codes:
        """Return what each wait rests on: the clock alone only if it is longer than two clocks may be apart."""
        if not self._tied:
            return np.full((members.size, self._seen.size), _SHORTEST)
        open_by, clock = self._clocks.uncertainty[self.places], self._clocks.clock[self.places]
        apart = clock[members][:, np.newaxis] != clock[self._late]
        doubt = np.where(apart, open_by[members][:, np.newaxis] + open_by[self._late], 0.0)
        return np.where(self._wait(members) > doubt, _CLOCK, np.where(apart, _ENDS, _CLOCK))

    def _align_starts(self, members: Codes) -> Ns:
        rows = self._channel.rows[members]
        place = np.broadcast_to(self.places[members][:, np.newaxis], rows.shape)
        return self._clocks.to_reference(place, self._calls.start[rows])

    def _length(self, members: Codes) -> Ns:
        rows = self._channel.rows[members]
        return self._calls.stop[rows] - self._calls.start[rows]

    def _wait(self, members: Codes) -> Ns:
        """Return how long each member waited in each meeting; 0 if it was not seen, or too short to be sure."""
        seen, length = self._channel.rows[members] >= 0, self._length(members)
        if not self._tied:
            return np.where(seen, length - self._last, 0)
        spread = self._clocks.spread[self.places]
        behind = self._last - self._align_starts(members)
        told = seen & (behind > RESOLUTION * (spread[members][:, np.newaxis] + spread[self._late]))
        return np.where(told, np.minimum(behind, length), 0)
