"""Events of two runs as one: both below the rows of one timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from lostflops.core.pictures import Events, Meetings

Places = Mapping[int, int]
"""Row of one timeline, by row of a run."""
_COLUMNS = ("start", "dur", "event", "wait")
_ARRIVALS = ("event", "arrived", "dur", "wait")


def join_events(rows: Sequence[str], sides: Sequence[tuple[Events, Places]]) -> Events:
    """Return the events of all sides below `rows`; lanes of rows without a place are not expected."""
    kinds, kind = _intern([(one.kinds, one.kind) for one, _ in sides])
    names, name = _intern([(one.names, one.name) for one, _ in sides])
    columns: dict[str, Any] = {column: _concatenate([getattr(one, column) for one, _ in sides]) for column in _COLUMNS}
    return Events(
        rows=tuple(rows),
        lanes=tuple(replace(lane, row=places[lane.row]) for one, places in sides for lane in one.lanes),
        kinds=kinds,
        names=names,
        **columns,
        kind=kind,
        name=name,
        launch=_shift_launches([one.launch for one, _ in sides]),
        meetings=_join_meetings([(one.meetings, places) for one, places in sides]),
        left_out=sum(one.left_out for one, _ in sides),
        counters=tuple(replace(counter, row=places[counter.row]) for one, places in sides for counter in one.counters),
    )


def _join_meetings(sides: Sequence[tuple[Meetings, Places]]) -> Meetings:
    """Return the meetings of all sides that have a place for each of their rows: a part of a collective would look like
    the whole of it."""
    kept, left_out = [], 0
    first = 0
    for one, places in sides:
        partial = {number for number, row in zip(one.meeting, one.row, strict=True) if row not in places}
        own = [at for at, number in enumerate(one.meeting) if number not in partial]
        left_out += one.left_out + len(one.meeting) - len(own)
        kept.append((one, places, own, first))
        first += max(one.meeting, default=0) + 1
    sayings, said = _intern([(one.sayings, [one.said[at] for at in own]) for one, _, own, _ in kept])
    columns = {
        column: _concatenate([[getattr(one, column)[at] for at in own] for one, _, own, _ in kept])
        for column in _ARRIVALS
    }
    return Meetings(
        meeting=_concatenate([[first + one.meeting[at] for at in own] for one, _, own, first in kept]),
        row=_concatenate([[places[one.row[at]] for at in own] for one, places, own, _ in kept]),
        **columns,
        said=said,
        sayings=sayings,
        left_out=left_out,
    )


def _intern(sides: Sequence[tuple[Sequence[str], Sequence[int]]]) -> tuple[tuple[str, ...], list[int]]:
    """Return the texts of all sides once each, and the place of each code among them.

    >>> _intern([(("a", "b"), [1, 0]), (("b", "c"), [0, 1])])
    (('a', 'b', 'c'), [1, 0, 1, 2])
    """
    places: dict[str, int] = {}
    for texts, _ in sides:
        for text in texts:
            places.setdefault(text, len(places))
    return tuple(places), [places[texts[code]] for texts, codes in sides for code in codes]


def _shift_launches(sides: Sequence[Sequence[int]]) -> list[int]:
    """Return places of launches, counted from 1, among the events of all sides; 0 stays 0."""
    shifted: list[int] = []
    for launches in sides:
        before = len(shifted)
        shifted += [launch and launch + before for launch in launches]
    return shifted


def _concatenate(sides: Sequence[Sequence[Any]]) -> list[Any]:
    return list(chain.from_iterable(sides))
