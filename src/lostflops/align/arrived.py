"""Who came when to each meeting of some ranks, with all other ranks of it: the meetings with most waiting first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from lostflops.pictures import Meetings
from lostflops.units import format_bytes

if TYPE_CHECKING:
    from lostflops.store.run import Run

Numbers = npt.NDArray[np.int64]

MOST_ARRIVALS: Final = 60_000
_UNKNOWN: Final = "unknown group"


class Stretch(Protocol):
    @property
    def start(self) -> int: ...
    @property
    def stop(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Waits:
    """How long ranks waited in events, by both."""

    by_event: dict[tuple[int, int], int]

    def of(self, rank: Numbers, event: Numbers) -> Numbers:
        pairs = zip(rank.tolist(), event.tolist(), strict=True)
        return np.array([self.by_event.get(pair, 0) for pair in pairs], np.int64)


def arrived(
    run: Run, ranks: Sequence[int], asked: Stretch, *, origin: int, most: int = MOST_ARRIVALS
) -> tuple[Meetings, Waits]:
    """Meetings that one of the ranks came to within the stretch, and how long these ranks waited in each event."""
    chosen = f"rank in ({', '.join(map(str, ranks))}) and event is not null"
    touched = (
        f"select distinct meeting from arrivals join collectives using (rank, event) where {chosen} "
        f"and arrived < {asked.stop} and arrived + stop - collectives.start > {asked.start}"
    )
    rows = run.sql(
        "select meeting, rank, event, arrived, stop - c.start as dur, coalesce(wait, 0) as wait, "
        "coalesce(op, '') as op, coalesce(group_id, '') as group_id, coalesce(bytes_in, -1) as bytes, "
        "sum(coalesce(wait, 0)) over (partition by meeting) as waited, count(*) over (partition by meeting) as came "
        "from arrivals a join collectives c using (rank, event) "
        f"where arrived is not null and meeting in ({touched}) order by waited desc, meeting, rank limit {most + 1}"
    ).fetchnumpy()
    ((held,),) = run.sql(
        f"select count(*) from arrivals where event is not null and arrived is not null and meeting in ({touched})"
    ).fetchall()
    waits = run.sql(f"select rank, event, wait from arrivals where {chosen} and wait > 0").fetchall()
    kept = {name: np.asarray(values) for name, values in _whole(rows, most).items()}
    return _meetings(run, kept, origin, held), Waits({(rank, event): wait for rank, event, wait in waits})


def _whole(rows: dict[str, Any], most: int) -> dict[str, npt.NDArray[Any]]:
    """Only meetings with all who came, in their order."""
    meeting = np.asarray(rows["meeting"])
    if meeting.size > most:
        last = int(np.flatnonzero(meeting != meeting[-1]).max(initial=-1)) + 1
        rows = {name: np.asarray(values)[:last] for name, values in rows.items()}
    order = np.lexsort((np.asarray(rows["rank"]), np.asarray(rows["meeting"])))
    return {name: np.asarray(values)[order] for name, values in rows.items()}


def _meetings(run: Run, kept: dict[str, npt.NDArray[Any]], origin: int, held: int) -> Meetings:
    texts = [
        " · ".join((op, group or _UNKNOWN, *([format_bytes(size)] if size >= 0 else ())))
        for op, group, size in zip(kept["op"], kept["group_id"], kept["bytes"].tolist(), strict=True)
    ]
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
