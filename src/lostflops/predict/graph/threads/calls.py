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
from lostflops.account.ledger.host_traits import Trait
from lostflops.account.ledger.record import UNKNOWN_GROUP, Codes, Flags, Ns, Record
from lostflops.predict.graph.tasks import NONE

if TYPE_CHECKING:
    from lostflops.store.run import Run

_TOLD: Final = """
    select rank, event, coalesce(any_value(lane), -1) as lane, any_value(coalesce(group_id, '')) as "group",
           any_value(coalesce(op, '')) as op, any_value(coalesce(peer, -1)) as peer
    from collectives where event is not null group by rank, event"""
_TRANSFERS: Final = ("send", "recv")


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
    names = [f"{op} {peer}" if op in _TRANSFERS else f"thread {lane}" for lane, _, op, peer in rows]
    places: dict[str, int] = {}
    lane = [places.setdefault(name, len(places)) for name in names]
    op = _texts([op for _, _, op, _ in rows])
    transfer = np.isin(op, _TRANSFERS)
    asked = _find_issuing_ops(record, start, op)
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


def _find_issuing_ops(record: Record, start: Ns, op: npt.NDArray[np.object_]) -> Codes:
    """Return the op that asked for each call: sends, receives and all others are each processed in order."""
    found = np.full(start.size, NONE, np.int64)
    rows = _asking(record)
    kind = np.array([_kind(record.names[code]) for code in record.host.name[rows].tolist()], np.object_)
    wanted = np.array([_kind(text) for text in op.tolist()], np.object_)
    for one in ("send", "recv", ""):
        own = np.flatnonzero(wanted == one)
        found[own] = _pair_from_end(start[own], record.host.start, rows[kind == one])
    return found


def _asking(record: Record) -> Codes:
    """Return the ops of the training thread that ask for communication, in order."""
    host = record.host
    rows = host.having(Trait.COMM, [record.training_lane])
    asks = np.array([name.startswith("c10d::") for name in record.names], np.bool_)
    rows = rows[asks[host.name[rows]]]
    ordered: Codes = rows[np.argsort(host.start[rows], kind="stable")]
    return ordered


def _kind(name: str) -> str:
    """Return `send` or `recv` for a transfer, and an empty string for any other operation.

    >>> [_kind(name) for name in ("c10d::recv_", "recv", "c10d::recv_any_source_", "c10d::send", "c10d::allreduce_")]
    ['recv', 'recv', 'recv', 'send', '']
    """
    return next((kind for kind in _TRANSFERS if name.removeprefix("c10d::").startswith(kind)), "")


def _pair_from_end(start: Ns, asked: Ns, rows: Codes) -> Codes:
    """Pair calls with the ops that asked for them, from the end: the call that was asked for last started last, and a
    call that was asked for before the recording has no partner.

    >>> _pair_from_end(np.array([5, 21, 30]), np.array([9, 10, 12]), np.array([1, 2])).tolist()
    [-1, 1, 2]
    """
    found = np.full(start.size, NONE, np.int64)
    begun = np.searchsorted(asked[rows], start, "right")
    # Of the rows that had begun, each call takes the last that no later call took.
    place = np.minimum.accumulate((begun - np.arange(1, start.size + 1))[::-1])[::-1] + np.arange(start.size)
    known = place >= 0
    found[known] = rows[place[known]]
    return found
