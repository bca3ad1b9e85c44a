"""The longest events of each lane, up to a total: room that one lane does not need goes to the others.

Sorting millions of events by duration takes seconds. Counting them by duration, in steps of a fifth, takes one pass. Of
the step that fits only in part, every k-th event is taken, evenly over time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import numpy.typing as npt

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
    windows = ", ".join("({}, {}, {})".format(rank, *clock.own(rank, edges).tolist()) for rank in ranks)
    inside = (
        f"from events join (values {windows}) as asked (rank, first, last) using (rank) "
        f"where rank in ({', '.join(map(str, ranks))}) and {SHOWN} and start < last and start + dur > first"
    )
    counted = run.columns(f"select rank, lane, {_STEP} as step, count(*) as count {inside} group by all")
    rank, lane, step, count = (np.asarray(counted[name]).astype(np.int64) for name in counted)
    taken = ", ".join(map(str, _choose_cutoffs(rank, lane, step, count, most))) or "(null, null, null, null)"
    columns = run.columns(
        f"select rank, lane, event, e.kind, coalesce(e.name, '') as name, start, dur, "
        "coalesce(correlation, -1) as link, coalesce(lanes.kind <> 'stream', true) as is_thread "
        f"from (select rank, lane, event, kind, name, start, dur, correlation, {_STEP} as step {inside}) as e "
        f"join (values {taken}) as taken (rank, lane, whole, every) using (rank, lane) "
        "left join lanes using (rank, lane) where step > whole or (step = whole and event % every = 0)"
    )
    return _longest({key: np.asarray(values) for key, values in columns.items()}, most), int(count.sum())


def _longest(found: Columns, most: int) -> Columns:
    """Keep the `most` longest: event numbers do not always divide evenly, and there may be more lanes than room."""
    if found["event"].size <= most:
        return found
    order = np.lexsort((found["event"], found["lane"], found["rank"], -found["dur"]))[:most]
    return {key: values[order] for key, values in found.items()}


def _choose_cutoffs(
    rank: Numbers, lane: Numbers, step: Numbers, count: Numbers, most: int
) -> list[tuple[int, int, int, int]]:
    """Return for each lane the duration step above which all events are taken, and n to take each n-th of that step."""
    order = np.lexsort((-step, lane, rank))
    rank, lane, step, count = rank[order], lane[order], step[order], count[order]
    first = np.flatnonzero(np.diff(rank, prepend=-1) | np.diff(lane, prepend=-1))
    parts = np.split(np.arange(rank.size), first[1:]) if rank.size else []
    room = max(share([int(count[part].sum()) for part in parts], most), 1)
    found = []
    for part in parts:
        longer = np.cumsum(count[part]) - count[part]
        at = part[int(np.searchsorted(longer, room, side="left")) - 1]
        left = room - int(longer[at - part[0]])
        found.append((int(rank[at]), int(lane[at]), int(step[at]), -(-int(count[at]) // left)))
    return found


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
