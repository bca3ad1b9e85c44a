"""Storages that the collector saw, with their owners, and the blocks that they belong to."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from lostflops.account.memory.blocks import Codes, Flags, Ns
from lostflops.account.memory.events import DEVICE, Device
from lostflops.account.memory.owners import CODE, OWNERS, Owner

if TYPE_CHECKING:
    from lostflops.store.run import Run

NEVER: Final = np.iinfo(np.int64).max
NOBODY: Final = len(OWNERS)
"""Code for no owner, after all owners."""


@dataclass(frozen=True, slots=True)
class RankHoldings:
    """Storages of one device that the collector saw, one row each."""

    time: Ns
    gone: Ns
    """When it was seen to be gone; `NEVER` if it was not."""
    before: Flags
    address: Codes
    bytes: Codes
    owner: Codes
    """Place in `OWNERS`, or `NOBODY`."""
    name: npt.NDArray[np.object_]
    line: npt.NDArray[np.object_]

    def __len__(self) -> int:
        return int(self.time.size)

    def rows(self, chosen: Codes | Flags) -> RankHoldings:
        return RankHoldings(*(getattr(self, name)[chosen] for name in RankHoldings.__slots__))

    def module(self) -> list[str]:
        """Return the module that has the parameter or buffer that each row belongs to; empty for others."""
        return [
            name.rpartition(".")[0] if owner < NOBODY and owner != CODE[Owner.BATCHES] else ""
            for owner, name in zip(self.owner.tolist(), self.name.tolist(), strict=True)
        ]


def of_window(run: Run, rank: int) -> str:
    """Return the condition for rows of the window whose events the run has.

    A run holds the trace of one window, but what was seen in all windows and all attempts: the rows of its window are
    those of the last opening before its last event.
    """
    ((last,),) = run.rows(f"select max(time) from memory where rank = {rank}")
    openings = [
        time
        for (time,) in run.rows(
            f"select distinct time from holdings where rank = {rank} and before and time is not null order by time"
        )
    ]
    if last is None or not openings:
        return "true"
    count = bisect_right(openings, last)
    after = f"time < {openings[count]}" if count < len(openings) else "true"
    return f"time >= {openings[count - 1]} and {after}" if count else "false"


def holdings_of(run: Run, rank: int) -> dict[Device, RankHoldings]:
    """Read holdings by device, those with an owner first: of several rows for one block, believe the first."""
    owners = " ".join(f"when '{owner}' then {code}" for owner, code in CODE.items())
    columns = run.columns(
        f"select {DEVICE}, time, coalesce(gone, {NEVER}) as gone, coalesce(before, false) as before, address, bytes, "
        f"case owner {owners} else {NOBODY} end as owner, coalesce(name, '') as name, coalesce(line, '') as line "
        f"from holdings where rank = {rank} and bytes > 0 and address is not null and time is not null "
        f"and device_type is not null and {of_window(run, rank)} order by owner, time"
    )
    kind, index = np.asarray(columns["kind"]), np.asarray(columns["index"])
    whole = ("time", "gone", "address", "bytes", "owner")
    found = RankHoldings(
        **{name: np.asarray(columns[name]).astype(np.int64) for name in whole},
        before=np.asarray(columns["before"]).astype(np.bool_),
        name=np.asarray(columns["name"]),
        line=np.asarray(columns["line"]),
    )
    devices = sorted(set(zip(kind.tolist(), index.tolist(), strict=True)))
    return {device: found.rows((kind == device[0]) & (index == device[1])) for device in devices}


def none_held() -> RankHoldings:
    empty, texts = np.empty(0, np.int64), np.empty(0, np.object_)
    return RankHoldings(empty, empty, empty.astype(np.bool_), empty, empty, empty, texts, texts)


def from_before(held: RankHoldings) -> RankHoldings:
    """Return storages that were there when the window opened, by address: each once, and none inside another."""
    found = held.rows(held.before)
    found = found.rows(np.lexsort((np.arange(len(found)), -found.bytes, found.address)))
    reach = np.maximum.accumulate(found.address + found.bytes) if len(found) else found.address
    inside = np.append(False, found.address[1:] < reach[:-1])[: len(found)]
    gone = np.minimum.reduceat(found.gone, np.flatnonzero(~inside)) if len(found) else found.gone
    found = found.rows(~inside)
    return RankHoldings(found.time, gone, *(getattr(found, name) for name in RankHoldings.__slots__[2:]))


def rows_of(held: RankHoldings, address: Codes, start: Ns, stop: Ns) -> Codes:
    """Return the row of each block's holding: same address, and alive when it was seen, or -1."""
    found = np.full(address.size, -1, np.int64)
    if not address.size or not len(held):
        return found
    order = np.lexsort((start, address))
    merged = np.lexsort(
        (
            np.concatenate((np.zeros(address.size), np.ones(len(held)))),
            np.concatenate((start[order], held.time)),
            np.concatenate((address[order], held.address)),
        )
    )
    is_block = merged < address.size
    last = np.maximum.accumulate(np.where(is_block, merged, -1))
    rows, at = merged[~is_block] - address.size, last[~is_block]
    block = order[np.maximum(at, 0)]
    fits = (at >= 0) & (address[block] == held.address[rows]) & (held.time[rows] < stop[block])
    rows, block = rows[fits], block[fits]
    best = np.lexsort((-rows, block))
    found[block[best]] = rows[best]
    return found
