"""Events of ranks kept in memory, so that a window of the timeline is found without reading the run again.

Events of a lane are sorted by start, so a window is a slice of each lane; the longest of a slice are picked without
sorting it. Ranks that were not requested lately make room for others.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from lostflops.account.align.lane_events import Extent, extent, lane_events
from lostflops.account.align.longest_events import SHOWN, Columns, longest, share
from lostflops.account.align.meeting_arrivals import ArrivalSizes
from lostflops.account.align.one_clock import OneClock
from lostflops.account.derive.counters import MOST_RANKS, RankCounters, counters_within, read_counters
from lostflops.core.errors import UsageError

if TYPE_CHECKING:
    from lostflops.core.pictures import Events
    from lostflops.store.run import Run

Numbers = npt.NDArray[np.int64]

MOST_EVENTS: Final = 20_000_000
"""All ranks together keep at most this many events, of some 40 bytes each."""
MOST_POINTS: Final = 10_000_000
"""All ranks together keep at most this many points of counters, of 16 bytes each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLane:
    """Events of one lane, sorted by start."""

    lane: int
    is_thread: bool
    start: Numbers
    stop: Numbers
    reach: Numbers
    """Latest stop of any event up to each."""
    event: Numbers
    link: Numbers
    kind: npt.NDArray[Any]
    name: npt.NDArray[Any]

    def within(self, first: int, last: int) -> Numbers:
        """Return the places of events that touch a window."""
        low = int(np.searchsorted(self.reach, first, side="right"))
        high = int(np.searchsorted(self.start, last, side="left"))
        return low + np.flatnonzero(self.stop[low:high] > first)


@dataclass(frozen=True, slots=True)
class HeldRank:
    lanes: tuple[HeldLane, ...]
    kinds: npt.NDArray[Any]
    names: npt.NDArray[Any]
    events: int


class HeldEvents:
    """Events of one state of a run. Any number of threads may ask."""

    def __init__(self, most: int = MOST_EVENTS) -> None:
        self._most = most
        self._ranks: OrderedDict[int, HeldRank] = OrderedDict()
        self._counters: OrderedDict[int, RankCounters] = OrderedDict()
        self._lock = threading.Lock()
        self._common: tuple[OneClock, Extent | None, ArrivalSizes] | None = None

    def within(self, run: Run, ranks: Sequence[int], start: int, stop: int, most: int) -> Events:
        """Return at most `most` events of these ranks that touch a window, and their counters in it.

        Times count from the beginning of the timeline. If there are more ranks than can be kept, SQL finds the events.
        """
        if not ranks or (unknown := sorted(set(ranks) - set(run.ranks))):
            raise UsageError(f"the run has no rank {unknown[0]}" if ranks else "no rank is given")
        with self._lock:
            # All at once: whoever asks first may be ended before all is known.
            if self._common is None:
                clock = OneClock.of(run)
                self._common = clock, extent(run, clock), ArrivalSizes.of(run)
            clock, span, sizes = self._common
        if span is None:
            raise UsageError("no rank recorded any events")
        asked = Extent(span.start + start, span.start + stop)
        own = sorted(set(ranks))
        found = lane_events(run, clock, own, asked, origin=span.start, most=most, pick=self._longest, sizes=sizes)
        counted = [self._counted(run, clock, rank) for rank in own] if len(own) <= MOST_RANKS else []
        shown = Extent(max(asked.start, span.start), min(asked.stop, span.stop))
        return replace(found, counters=counters_within(run, counted, shown, origin=span.start))

    def _longest(
        self, run: Run, clock: OneClock, ranks: Sequence[int], asked: Extent, most: int
    ) -> tuple[Columns, int]:
        """Return events and their number; lanes take turns, and each gives its longest first."""
        told = ", ".join(map(str, ranks))
        ((events,),) = run.rows(f"select coalesce(sum(events), 0) from ranks where rank in ({told})")
        if events > self._most:
            return longest(run, clock, ranks, asked, most)
        slices = []
        for rank in ranks:
            held = self._of(run, rank)
            first, last = clock.own(rank, np.array([asked.start, asked.stop])).tolist()
            slices += [(rank, held, lane, lane.within(first, last)) for lane in held.lanes]
        turns = share([places.size for *_, places in slices], most) + 1
        parts = [_part(rank, held, lane, places, turns) for rank, held, lane, places in slices]
        found = (
            {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else _part_of_none()
        )
        order = np.lexsort((found["lane"], found["rank"], found.pop("place")))[:most]
        kept = {name: values[order] for name, values in found.items()}
        return kept, sum(places.size for *_, places in slices)

    def _of(self, run: Run, rank: int) -> HeldRank:
        with self._lock:
            held = self._ranks.get(rank)
            if held is None:
                held = self._ranks[rank] = read_rank(run, rank)
            self._ranks.move_to_end(rank)
            while len(self._ranks) > 1 and sum(one.events for one in self._ranks.values()) > self._most:
                self._ranks.popitem(last=False)
            return held

    def _counted(self, run: Run, clock: OneClock, rank: int) -> RankCounters:
        with self._lock:
            counted = self._counters.get(rank)
            if counted is None:
                counted = self._counters[rank] = read_counters(run, clock, rank)
            self._counters.move_to_end(rank)
            while len(self._counters) > 1 and sum(one.points for one in self._counters.values()) > MOST_POINTS:
                self._counters.popitem(last=False)
            return counted


def read_rank(run: Run, rank: int) -> HeldRank:
    own = f"events where rank = {int(rank)} and {SHOWN}"
    kinds, kind = _number_texts(run, "kind", own)
    names, name = _number_texts(run, "coalesce(name, '')", own)
    threads = dict(run.rows(f"select lane, kind <> 'stream' from lanes where rank = {int(rank)}"))
    found = run.columns(
        "select lane, event, k.code as kind, n.code as name, start, start + dur as stop, "
        f"coalesce(correlation, -1) as link from (select * from {own}) e "
        f"join {kind} k on e.kind = k.text join {name} n on coalesce(e.name, '') = n.text"
    )
    columns = {key: np.asarray(values) for key, values in found.items()}
    order = np.lexsort((columns["event"], columns["start"], columns["lane"]))
    columns = {key: values[order] for key, values in columns.items()}
    lanes, first = np.unique(columns["lane"], return_index=True)
    stops = [*first[1:].tolist(), order.size]
    cut = tuple(
        _lane(lane, threads.get(lane, True), {key: values[start:stop] for key, values in columns.items()})
        for lane, start, stop in zip(lanes.tolist(), first.tolist(), stops, strict=True)
    )
    return HeldRank(cut, kinds=kinds, names=names, events=order.size)


def _number_texts(run: Run, text: str, own: str) -> tuple[npt.NDArray[Any], str]:
    """Return the distinct texts in order, and SQL that gives each its place: a million Python strings would take
    seconds."""
    texts = f"(select distinct {text} as text from {own})"
    found = [one for (one,) in run.rows(f"select text from {texts} order by text")]
    known = np.empty(len(found), object)
    known[:] = found
    return known, f"(select text, row_number() over (order by text) - 1 as code from {texts})"


def _lane(lane: int, is_thread: bool, columns: Columns) -> HeldLane:
    start, stop = columns["start"].astype(np.int64), columns["stop"].astype(np.int64)
    return HeldLane(
        lane=lane,
        is_thread=is_thread,
        start=start,
        stop=stop,
        reach=np.maximum.accumulate(stop),
        event=columns["event"].astype(np.int64),
        link=columns["link"].astype(np.int64),
        kind=columns["kind"].astype(np.uint16),
        name=columns["name"].astype(np.uint32),
    )


def _part(rank: int, held: HeldRank, lane: HeldLane, places: Numbers, turns: int) -> dict[str, npt.NDArray[Any]]:
    dur = lane.stop[places] - lane.start[places]
    if places.size > turns:
        # All as long as the shortest that is kept, so that ties go by number as everywhere.
        long = dur >= np.partition(dur, places.size - turns)[places.size - turns]
        places, dur = places[long], dur[long]
    order = np.lexsort((lane.event[places], -dur))[:turns]
    places, dur = places[order], dur[order]
    return {
        "rank": np.full(places.size, rank, np.int64),
        "lane": np.full(places.size, lane.lane, np.int64),
        "event": lane.event[places],
        "kind": held.kinds[lane.kind[places]],
        "name": held.names[lane.name[places]],
        "start": lane.start[places],
        "dur": dur,
        "link": lane.link[places],
        "is_thread": np.full(places.size, lane.is_thread),
        "place": np.arange(places.size),
    }


def _part_of_none() -> dict[str, npt.NDArray[Any]]:
    numbers = ("rank", "lane", "event", "start", "dur", "link", "place")
    return {**{name: np.zeros(0, np.int64) for name in numbers}, "kind": np.zeros(0, object),
            "name": np.zeros(0, object), "is_thread": np.zeros(0, np.bool_)}  # fmt: skip
