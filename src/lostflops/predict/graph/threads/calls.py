"""Collectives of a rank without a device, as host threads ran them: their lanes, and the ops that asked for them.

Collectives wait in a queue for a worker of their group, so each worker is a lane. Sends and receives run at once,
except that those between the same two ranks stay in order: each direction and peer is a lane.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from lostflops.account.ledger.batches import RankBatch
from lostflops.account.ledger.issuing_ops import TRANSFERS, find_issuing_ops
from lostflops.account.ledger.record import UNKNOWN_GROUP, Codes, Flags, Ns, Record
from lostflops.predict.graph.tasks import NONE

if TYPE_CHECKING:
    from lostflops.store.run import Run

_TOLD: Final = """
    select rank, event, coalesce(any_value(lane), -1) as lane, any_value(coalesce(group_id, '')) as "group",
           any_value(coalesce(op, '')) as op, any_value(coalesce(peer, -1)) as peer
    from collectives where event is not null group by rank, event"""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCalls:
    """Collectives and transfers that threads of a host ran, in the order of their recorded start."""

    event: Codes
    start: Ns
    stop: Ns
    noticed: Ns
    """When the thread knew that the call was over."""
    lane: Codes
    """Index into `lanes`."""
    asked: Codes
    """Host row of the op that asked for the call, NONE if it was not recorded."""
    op: npt.NDArray[np.object_]
    group: npt.NDArray[np.object_]
    transfer: Flags
    """Whether the call is one end of a send."""
    lanes: tuple[str, ...]
    """Names of the lanes."""

    def __len__(self) -> int:
        return int(self.event.size)

    def before(self) -> Codes:
        """Return the call before each on its lane, NONE for the first."""
        order = np.lexsort((np.arange(len(self)), self.lane))
        found = np.full(len(self), NONE, np.int64)
        same = self.lane[order][1:] == self.lane[order][:-1]
        found[order[1:][same]] = order[:-1][same]
        return found


def calls(run: Run, record: Record) -> HostCalls:
    own = record.gloo
    order = np.lexsort((own.event, own.start))
    event, start, stop = own.event[order], own.start[order], np.maximum(own.stop, own.start)[order]
    noticed = np.maximum(own.noticed[order], stop)
    of_all = run.keep(_TOLD, lambda: RankBatch(run, _TOLD, run.ranks))
    columns = (column.tolist() for column in of_all.of(record.rank).values())
    told: dict[int, tuple[Any, ...]] = {number: tuple(row) for number, *row in zip(*columns, strict=True)}
    rows = [told.get(number, (NONE, "", "", NONE)) for number in event.tolist()]
    names = [f"{op} {peer}" if op in TRANSFERS else f"thread {lane}" for lane, _, op, peer in rows]
    places: dict[str, int] = {}
    lane = [places.setdefault(name, len(places)) for name in names]
    op = _texts([op for _, _, op, _ in rows])
    transfer = np.isin(op, TRANSFERS)
    asked = find_issuing_ops(record, start, op)
    posted = transfer & (asked >= 0)
    # What is sent or received is recorded from after it was handed over.
    start[posted] = record.host.start[asked[posted]]
    return HostCalls(
        event=event,
        start=start,
        stop=stop,
        noticed=noticed,
        lane=np.array(lane, np.int64),
        asked=asked,
        op=op,
        group=_texts([group or UNKNOWN_GROUP for _, group, *_ in rows]),
        transfer=transfer,
        lanes=tuple(places),
    )


def _texts(values: list[str]) -> npt.NDArray[np.object_]:
    found = np.empty(len(values), np.object_)
    found[:] = values
    return found
