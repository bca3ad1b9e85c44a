"""The longest events of each lane, up to a total: room that one lane does not need goes to the others.

Sorting millions of events by duration takes seconds. Counting them by duration, in steps of a fifth, takes one pass. Of
the step that fits only in part, every k-th event is taken, evenly over time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from lostflops.core.limits import MOST_DRAWN_LANES

if TYPE_CHECKING:
    from lostflops.account.align.one_clock import OneClock
    from lostflops.store.run import Run

Columns = Mapping[str, npt.NDArray[Any]]
Numbers = npt.NDArray[np.int64]

SHOWN: Final = "kind <> 'span'"
_STEP: Final = "cast(floor(4 * log2(dur + 1)) as integer)"


class EventStretch(Protocol):
    @property
    def start(self) -> int: ...
    @property
    def stop(self) -> int: ...


def longest(run: Run, clock: OneClock, ranks: Sequence[int], asked: EventStretch, most: int) -> tuple[Columns, int]:
    """Return at most `most` events that touch the stretch, on the common clock, and how many there are in all."""
    # Clocks are turned back to a ns or so; an event at the very edge does not matter.
    edges = np.array([asked.start, asked.stop])
    windows = np.array([(rank, *clock.own(rank, edges).tolist()) for rank in ranks], np.int64).reshape(-1, 3)
    lists = {name: windows[:, place].tolist() for place, name in enumerate(("ranks", "firsts", "lasts"))}
    inside = (
        f"from events join ({_table('ranks as rank', 'firsts as first', 'lasts as last')}) using (rank) "
        f"where {SHOWN} and start < last and start + dur > first"
    )
    counted = run.columns(
        f"select rank, lane, {_STEP} as step, count(*) as count, sum(dur)::double as time {inside} group by all", lists
    )
    found = {name: np.asarray(values) for name, values in counted.items()}
    cutoffs = _choose_cutoffs(_keep_busiest(found), most)
    columns = run.columns(
        f"select rank, lane, event, e.kind, coalesce(e.name, '') as name, start, dur, "
        "coalesce(correlation, -1) as link, coalesce(lanes.kind <> 'stream', true) as is_thread "
        f"from (select rank, lane, event, kind, name, start, dur, correlation, {_STEP} as step {inside}) as e "
        f"join ({_table('own as rank', 'lane as lane', 'whole as whole', 'every as every')}) "
        "using (rank, lane) left join lanes using (rank, lane) "
        "where step > whole or (step = whole and event % every = 0)",
        lists | cutoffs,
    )
    return _longest({key: np.asarray(values) for key, values in columns.items()}, most), int(found["count"].sum())


def _table(*columns: str) -> str:
    """Return SQL for a table of lists: each column is the name of a list, and that of the column."""
    named = (column.split(" as ") for column in columns)
    return "select " + ", ".join(f"unnest(${listed}::bigint[]) as {name}" for listed, name in named)


def _keep_busiest(counted: Columns) -> Columns:
    """Keep the lanes with the most time, as many as are drawn."""
    if counted["lane"].size <= MOST_DRAWN_LANES:
        return counted
    lane = counted["rank"].astype(np.int64) * (int(counted["lane"].max()) + 1) + counted["lane"]
    lanes, which = np.unique(lane, return_inverse=True)
    time = np.bincount(which, counted["time"])
    kept = np.zeros(lanes.size, np.bool_)
    kept[np.lexsort((lanes, -time))[:MOST_DRAWN_LANES]] = True
    return {name: values[kept[which]] for name, values in counted.items()}


def _longest(found: Columns, most: int) -> Columns:
    """Keep the `most` longest: event numbers do not always divide evenly, and there may be more lanes than room."""
    if found["event"].size <= most:
        return found
    order = np.lexsort((found["event"], found["lane"], found["rank"], -found["dur"]))[:most]
    return {key: values[order] for key, values in found.items()}


def _choose_cutoffs(counted: Columns, most: int) -> dict[str, list[int]]:
    """Return for each lane the duration step above which all events are taken, and n to take each n-th of that step."""
    rank, lane, step, count = (counted[name].astype(np.int64) for name in ("rank", "lane", "step", "count"))
    order = np.lexsort((-step, lane, rank))
    rank, lane, step, count = rank[order], lane[order], step[order], count[order]
    first = np.flatnonzero(np.diff(rank, prepend=-1) | np.diff(lane, prepend=-1))
    parts = np.split(np.arange(rank.size), first[1:]) if rank.size else []
    room = max(share([int(count[part].sum()) for part in parts], most), 1)
    chosen, every = [], []
    for part in parts:
        longer = np.cumsum(count[part]) - count[part]
        at = int(part[int(np.searchsorted(longer, room, side="left")) - 1])
        left = room - int(longer[at - part[0]])
        chosen.append(at)
        every.append(-(-int(count[at]) // left))
    cutoffs = {name: values[chosen].tolist() for name, values in (("own", rank), ("lane", lane), ("whole", step))}
    return {**cutoffs, "every": every}


def share(held: Sequence[int], most: int) -> int:
    """Return how many events each lane may have, so that all lanes together have at most `most`.

    With one more each, they would have all that they hold, or more than `most`.

    >>> share([2, 50, 100], 60)
    29
    """
    ordered = sorted(held)
    for place, own in enumerate(ordered):
        lanes = len(ordered) - place
        if own * lanes > most:
            return most // lanes
        most -= own
    return max(held, default=0)
