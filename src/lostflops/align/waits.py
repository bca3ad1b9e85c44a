"""Who waited in each meeting, how long, and for whom: rows of table `arrivals`.

A rank waits from its start until the last of those seen has started, on the common clock. What is shorter than the ends
of the ranks lie apart cannot be told and counts as none. Where clocks cannot be compared, the rank with the shortest
call is taken for the last, and the others waited for what their calls took longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lostflops.align.calls import Calls, Codes, Flags, Ns
from lostflops.align.clocks import Clocks, Floats
from lostflops.align.match import Channel, Matched

BASES: Final = (None, "clock", "shortest")
_CLOCK, _SHORTEST = 1, 2
UNKNOWN: Final = np.iinfo(np.int64).min
_RESOLUTION: Final = 3
"""Times the typical distance of ends that a wait must exceed."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Columns of table `arrivals`, in order of rank; unknown numbers are the smallest integer, `basis` an index into
    BASES."""

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


def arrivals(matched: Matched, clocks: Clocks) -> Arrivals:
    parts = list(_parts(matched, clocks))
    if not parts:
        none = np.empty(0, np.int64)
        return Arrivals(none, none, none, np.empty(0, np.bool_), *(none,) * 7)
    columns = [np.concatenate([part[i] for part in parts]) for i in range(len(Arrivals.__slots__))]
    del parts
    order = np.argsort(columns[0], kind="stable")
    return Arrivals(*(column[order] for column in columns))


def _parts(matched: Matched, clocks: Clocks) -> Iterator[tuple[npt.NDArray[Any], ...]]:
    meetings = 0
    for channel in matched.channels:
        yield _of(matched.calls, channel, clocks, meetings)
        meetings += channel.rows.shape[1]


def _of(calls: Calls, channel: Channel, clocks: Clocks, first: int) -> tuple[npt.NDArray[Any], ...]:
    rows, places = channel.rows, clocks.place(channel.members)
    seen = rows >= 0
    start, stop = calls.start[rows], calls.stop[rows]
    place = np.broadcast_to(places[:, np.newaxis], rows.shape)
    tied = clocks.tied[places]
    if tied.all():
        arrived = clocks.told(place, start)
        wait, late = _by_clock(arrived, stop - start, seen, clocks.spread[places])
    else:
        arrived = np.where(tied[:, np.newaxis], clocks.told(place, start), UNKNOWN)
        wait, late = _by_length(stop - start, seen)
    waited = np.where(seen, wait, 0).max(axis=0) > 0
    step = np.where(seen, calls.step[rows], -1).max(axis=0)

    def of_meeting(values: Codes) -> Codes:
        return np.tile(values, channel.members.size)

    def where_seen(values: Codes) -> Codes:
        return np.where(seen, values, UNKNOWN).ravel()

    return (
        np.repeat(channel.members, rows.shape[1]),
        where_seen(calls.event[rows]),
        of_meeting(first + np.arange(rows.shape[1])),
        np.full(rows.size, channel.is_p2p),
        of_meeting(np.where(step >= 0, step, UNKNOWN)),
        np.full(rows.size, channel.expected if channel.expected > 0 else UNKNOWN),
        of_meeting(seen.sum(axis=0)),
        where_seen(arrived),
        where_seen(wait),
        of_meeting(np.where(waited, channel.members[late], UNKNOWN)),
        np.where(seen, _CLOCK if tied.all() else _SHORTEST, 0).ravel(),
    )


def _by_clock(arrived: Ns, length: Ns, seen: Flags, spread: Floats) -> tuple[Ns, Codes]:
    """Waits, and the place of the last to arrive in each meeting."""
    late = np.where(seen, arrived, UNKNOWN).argmax(axis=0)
    last = arrived[late, np.arange(late.size)]
    wait = np.minimum(last - arrived, length)
    told = last - arrived > _RESOLUTION * (spread[:, np.newaxis] + spread[late])
    return np.where(told, wait, 0), late


def _by_length(length: Ns, seen: Flags) -> tuple[Ns, Codes]:
    late = np.where(seen, length, np.iinfo(np.int64).max).argmin(axis=0)
    return length - length[late, np.arange(late.size)], late
