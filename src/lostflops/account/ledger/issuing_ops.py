"""The ops of the training thread that asked for the collectives which host threads ran."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.account.ledger.host_traits import Trait
from lostflops.account.ledger.record import Codes, Ns, Record

TRANSFERS: Final = ("send", "recv")


def find_issuing_ops(record: Record, start: Ns, op: npt.NDArray[np.object_]) -> Codes:
    """Return the host row of the op that asked for each call, or -1; calls are in order of their start.

    Sends, receives and all others are each processed in order.
    """
    found = np.full(start.size, -1, np.int64)
    rows = _asking(record)
    kind = np.array([_kind(record.names[code]) for code in record.host.name[rows].tolist()], np.object_)
    wanted = np.array([_kind(text) for text in op.tolist()], np.object_)
    for one in (*TRANSFERS, ""):
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
    return next((kind for kind in TRANSFERS if name.removeprefix("c10d::").startswith(kind)), "")


def _pair_from_end(start: Ns, asked: Ns, rows: Codes) -> Codes:
    """Pair calls with the ops that asked for them, from the end: the call that was asked for last started last, and a
    call that was asked for before the recording has no partner.

    >>> _pair_from_end(np.array([5, 21, 30]), np.array([9, 10, 12]), np.array([1, 2])).tolist()
    [-1, 1, 2]
    """
    found = np.full(start.size, -1, np.int64)
    begun = np.searchsorted(asked[rows], start, "right")
    # Of the rows that had begun, each call takes the last that no later call took.
    place = np.minimum.accumulate((begun - np.arange(1, start.size + 1))[::-1])[::-1] + np.arange(start.size)
    known = place >= 0
    found[known] = rows[place[known]]
    return found
