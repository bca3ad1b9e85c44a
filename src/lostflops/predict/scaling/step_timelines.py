"""The steps of a run as timelines, one for each rank that is replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lostflops.account.ledger.by_rank import Progress
from lostflops.account.ledger.call_sizes import SIZE
from lostflops.account.ledger.partition import partition
from lostflops.account.ledger.record import UNKNOWN_GROUP, Record, records
from lostflops.account.ledger.scope import scope
from lostflops.account.ledger.windows import WindowKind, window
from lostflops.core.errors import UnknownCost
from lostflops.predict.scaling.timeline import StepCall, StepTimeline, timeline

if TYPE_CHECKING:
    from lostflops.store.run import Run

MOST_RANKS: Final = 16
"""Most ranks that are replayed, evenly chosen out of all."""

_CALLS: Final = """
    select event, any_value(lane), any_value(coalesce(group_id, '')), any_value(coalesce(op, '')),
           sum({size})::bigint,
           coalesce(bool_and(seen >= coalesce(expected, seen)), false)
    from collectives left join arrivals using (rank, event)
    where rank = {rank} and event is not null group by event"""


def timelines(
    run: Run, link: Callable[[StepCall], str | None], progress: Progress | None = None
) -> Iterator[StepTimeline]:
    """Yield the timelines of up to MOST_RANKS ranks that recorded whole steps."""
    asked = scope(run, WindowKind.STEPS)
    held = [rank for (rank,) in run.rows("select distinct rank from steps order by rank")]
    places = np.linspace(0, len(held) - 1, min(len(held), MOST_RANKS)).round().astype(int)
    chosen = [held[place] for place in places.tolist()]
    alone = _only_group(run)
    for done, record in enumerate(records(run, chosen)):
        if progress is not None:
            progress(done, len(chosen))
        edges = window(record, asked.kind)
        if edges.number:
            calls = _without_waits(list(_calls(run, record, alone)))
            yield timeline(partition(record, edges), calls, link)


def _calls(run: Run, record: Record, alone: str) -> Iterator[StepCall]:
    told: dict[int, tuple[Any, ...]] = {row[0]: row[1:] for row in run.rows(_CALLS.format(rank=record.rank, size=SIZE))}
    own = record.communication
    columns = (own.event, own.start, own.ready, own.stop)
    for event, start, ready, stop in zip(*(column.tolist() for column in columns), strict=True):
        lane, group, op, size, met = told.get(event, (-1 - event, "", "", None, False))
        yield StepCall(start, ready, stop, lane, group or alone, op, size, met)


def _without_waits(calls: Sequence[StepCall]) -> list[StepCall]:
    """Return the calls with waits guessed if not all members were recorded: the shortest call of a kind is assumed to
    have waited least, and the others to move data for as long as it does."""
    shortest: dict[tuple[str, str, int | None], int] = {}
    for call in calls:
        if not call.met:
            kind = call.group, call.op, call.size
            shortest[kind] = min(shortest.get(kind, call.stop - call.ready), call.stop - call.ready)
    return [
        call if call.met else call._replace(ready=call.stop - shortest[call.group, call.op, call.size])
        for call in calls
    ]


def _only_group(run: Run) -> str:
    """Return the group for calls that do not record theirs: the only one that communicates, else UNKNOWN_GROUP."""
    groups = run.rows("select distinct group_id from collectives where group_id is not null limit 2")
    return groups[0][0] if len(groups) == 1 else UNKNOWN_GROUP


def check_communicates(run: Run) -> None:
    if not run.rows("select 1 from collectives limit 1"):
        raise UnknownCost("no collective was recorded, so the communication of more ranks is unknown")
