"""Arrivals of all ranks at the meetings of some ranks, the meetings with most waiting first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from lostflops.account.align.longest_events import EventStretch
from lostflops.core.pictures import Meetings
from lostflops.core.units import format_bytes

if TYPE_CHECKING:
    from lostflops.store.run import Run

Numbers = npt.NDArray[np.int64]

MOST_ARRIVALS: Final = 60_000
_UNKNOWN: Final = "unknown group"


@dataclass(frozen=True, slots=True)
class RankWaits:
    """Waits of ranks in events, only those above 0, sorted by both; columns, because there may be millions."""

    rank: Numbers
    event: Numbers
    wait: Numbers
    """In ns."""

    def of(self, rank: Numbers, event: Numbers) -> Numbers:
        """Return the wait of each pair of rank and event, in ns; 0 if it did not wait.

        >>> waits = RankWaits(np.array([0, 0, 2]), np.array([3, 5, 1]), np.array([70, 80, 90]))
        >>> waits.of(np.array([2, 0, 0, 1]), np.array([1, 5, 7, 3])).tolist()
        [90, 80, 0, 0]
        """
        if not self.rank.size:
            return np.zeros(rank.size, np.int64)
        events = int(max(self.event.max(), event.max(initial=0))) + 1
        known, asked = (one.astype(np.int64) * events + two for one, two in ((self.rank, self.event), (rank, event)))
        at = np.minimum(np.searchsorted(known, asked), known.size - 1)
        return np.where(known[at] == asked, self.wait[at], 0)


@dataclass(frozen=True, slots=True)
class ArrivalSizes:
    """Meetings of a run and their sizes: the same for every window, so a live page keeps them."""

    meeting: Numbers
    """Meetings, most waiting first."""
    came: Numbers
    """Number of ranks that came to each."""

    @classmethod
    def of(cls, run: Run) -> ArrivalSizes:
        found = run.columns(
            "select meeting, count(*) as came, sum(coalesce(wait, 0))::bigint as waited from arrivals "
            "where arrived is not null and event is not null group by meeting order by waited desc, meeting"
        )
        return cls(np.asarray(found["meeting"], np.int64), np.asarray(found["came"], np.int64))

    def among(self, meetings: Numbers) -> ArrivalSizes:
        """Return only these meetings, in the same order.

        >>> ArrivalSizes(np.array([7, 2, 5]), np.array([1, 2, 3])).among(np.array([5, 7])).meeting.tolist()
        [7, 5]
        """
        kept = np.isin(self.meeting, meetings)
        return ArrivalSizes(self.meeting[kept], self.came[kept])


def read_arrivals(
    run: Run,
    ranks: Sequence[int],
    asked: EventStretch,
    *,
    origin: int,
    most: int = MOST_ARRIVALS,
    sizes: ArrivalSizes | None = None,
) -> tuple[Meetings, RankWaits]:
    """Read the meetings that one of the ranks came to within the stretch, and how long they waited in each event."""
    chosen = f"rank in ({', '.join(map(str, ranks))}) and event is not null"
    near = f"arrived < {asked.stop} and arrived > {asked.start} - (select max(stop - start) from collectives)"
    touched = run.columns(f"select distinct meeting from arrivals where {chosen} and {near}")["meeting"]
    held = (sizes or ArrivalSizes.of(run)).among(np.asarray(touched, np.int64))
    taken = held.meeting[: int(np.searchsorted(np.cumsum(held.came), most, side="right"))]
    wanted = ", ".join(map(str, taken.tolist())) or "null"
    rows = run.columns(
        "select meeting, rank, event, arrived, stop - start as dur, coalesce(wait, 0) as wait, "
        "coalesce(op, '') as op, coalesce(group_id, '') as group_id, coalesce(bytes_in, -1) as bytes "
        "from arrivals join collectives using (rank, event) "
        f"where arrived is not null and meeting in ({wanted}) order by meeting, rank"
    )
    waits = run.columns(
        f"select rank, event, wait from arrivals where {chosen} and wait > 0 and (arrived is null or {near}) "
        "order by rank, event"
    )
    kept = {name: np.asarray(values) for name, values in rows.items()}
    return _meetings(run, kept, origin, int(held.came.sum())), RankWaits(*(np.asarray(waits[name]) for name in waits))


@lru_cache(maxsize=4096)
def _describe_collective(op: str, group: str, size: int) -> str:
    return " · ".join((op, group or _UNKNOWN, *([format_bytes(size)] if size >= 0 else ())))


def _meetings(run: Run, kept: dict[str, npt.NDArray[Any]], origin: int, held: int) -> Meetings:
    texts = list(map(_describe_collective, kept["op"], kept["group_id"], kept["bytes"].tolist()))
    sayings, said = np.unique(np.array(texts, object), return_inverse=True)
    return Meetings(
        meeting=kept["meeting"].tolist(),
        row=np.searchsorted(np.array(run.ranks), kept["rank"]).tolist(),
        event=kept["event"].tolist(),
        arrived=(kept["arrived"] - origin).tolist(),
        dur=kept["dur"].tolist(),
        wait=kept["wait"].tolist(),
        said=said.tolist(),
        sayings=tuple(sayings.tolist()),
        left_out=held - len(texts),
    )
