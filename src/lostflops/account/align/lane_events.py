"""Events on the lanes of ranks, on one clock: the longest of each lane, as many as fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from lostflops.account.align.longest_events import SHOWN, Columns, Numbers, longest
from lostflops.account.align.meeting_arrivals import MOST_ARRIVALS, ArrivalSizes, read_arrivals
from lostflops.account.align.one_clock import OneClock
from lostflops.core.pictures import Events, Lane
from lostflops.store.row_groups import group_rows

if TYPE_CHECKING:
    from lostflops.store.run import Run

Pick = Callable[["Run", OneClock, Sequence[int], "Extent", int], tuple[Columns, int]]

BYTES_AN_EVENT: Final = 10
"""Approximate size of an event in a page; the first event of each name adds the name."""
LONGEST_NAME: Final = 300
_DEVICE: Final = ("kernel", "comm", "memcpy", "memset")


@dataclass(frozen=True, slots=True)
class Extent:
    """Time from the first event of any rank to the last, on the common clock."""

    start: int
    stop: int


def row_name(rank: int) -> str:
    return f"rank {rank}"


def extent(run: Run, clock: OneClock) -> Extent | None:
    """Return when anything was recorded; None if nothing was."""
    rows = run.rows(f"select rank, min(start), max(start + dur) from events where {SHOWN} group by rank")
    edges = [clock.to_common(rank, np.array([start, stop])).tolist() for rank, start, stop in rows]
    return Extent(min(start for start, _ in edges), max(stop for _, stop in edges)) if edges else None


def lane_events(
    run: Run,
    clock: OneClock,
    ranks: Sequence[int],
    asked: Extent,
    *,
    origin: int,
    most: int,
    room: int | None = None,
    pick: Pick = longest,
    sizes: ArrivalSizes | None = None,
) -> Events:
    """Return at most `most` events of these ranks that touch the extent `asked`.

    `room` is a limit in bytes, for events and names. `pick` finds the events. `sizes` are those of the run's meetings,
    if the caller has them.
    """
    found, held = pick(run, clock, ranks, asked, most)
    names, name = _intern_texts(found["name"])
    while room is not None and (cost := _cost(names, name.size)) > room and most > 1:
        most = min(most, name.size) * room // (cost + cost // 8)
        found, held = pick(run, clock, ranks, asked, most)
        names, name = _intern_texts(found["name"])
    start = _align_times(clock, found["rank"], found["start"])
    order = np.lexsort((found["event"], -found["dur"], start, found["lane"], found["is_thread"], found["rank"]))
    found = {key: values[order] for key, values in found.items()}
    # Again, in this order: a query has none of its own, and a run has one page.
    names, name = _intern_texts(found["name"])
    kinds, kind = _intern_texts(found["kind"])
    meetings, waits = read_arrivals(run, ranks, asked, origin=origin, most=min(most, MOST_ARRIVALS), sizes=sizes)
    return Events(
        rows=tuple(row_name(rank) for rank in run.ranks),
        lanes=_lanes(run, found),
        kinds=kinds,
        names=names,
        start=(start[order] - origin).tolist(),
        dur=found["dur"].tolist(),
        kind=kind.tolist(),
        name=name.tolist(),
        event=found["event"].tolist(),
        launch=_launches(found).tolist(),
        wait=waits.of(found["rank"], found["event"]).tolist(),
        meetings=meetings,
        left_out=held - order.size,
    )


def _intern_texts(texts: npt.NDArray[Any]) -> tuple[tuple[str, ...], Numbers]:
    """Return distinct texts in order of appearance, cut if they are very long, and the index of each."""
    places: dict[str, int] = {}
    codes = [places.setdefault(text, len(places)) for text in texts.tolist()]
    return tuple(_truncate_text(text) for text in places), np.array(codes, np.int64)


def _truncate_text(text: str) -> str:
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"


def _cost(names: Sequence[str], events: int) -> int:
    return sum(len(text.encode()) for text in names) + BYTES_AN_EVENT * events


def _align_times(clock: OneClock, rank: Numbers, times: Numbers) -> Numbers:
    moved = times.copy()
    for one, rows in group_rows(rank):
        moved[rows] = clock.to_common(one, times[rows])
    return moved


def _lanes(run: Run, found: Columns) -> tuple[Lane, ...]:
    told = {
        (rank, lane): name or (f"stream {stream}" if kind == "stream" else f"thread {thread}" if thread else "others")
        for rank, lane, kind, thread, stream, name in run.rows(
            "select rank, lane, kind, thread, stream, trim(name) from lanes"
        )
    }
    rows = {rank: row for row, rank in enumerate(run.ranks)}
    counts = Counter(zip(found["rank"].tolist(), found["lane"].tolist(), strict=True))
    return tuple(
        Lane(rows[rank], told.get((rank, lane), f"lane {lane}"), count) for (rank, lane), count in counts.items()
    )


def _launches(found: Columns) -> Numbers:
    """Return the place of the first call with the same correlation, from 1; 0 if there is none among the events."""
    _, link = np.unique(found["link"], return_inverse=True)
    key = found["rank"].astype(np.int64) * (link.size + 1) + link
    linked = found["link"] >= 0
    calls = np.flatnonzero(linked & (found["kind"] == "runtime"))
    launched = np.flatnonzero(linked & np.isin(found["kind"], _DEVICE))
    launch = np.zeros(key.size, np.int64)
    if calls.size:
        calls = calls[np.lexsort((found["start"][calls], key[calls]))]
        at = np.minimum(np.searchsorted(key[calls], key[launched]), calls.size - 1)
        launch[launched] = np.where(key[calls][at] == key[launched], calls[at] + 1, 0)
    return launch
