"""Collectives made by hand: few ranks, few calls, and what was matched of them as plain values."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from lostflops.account.align.calls import CollectiveCalls
from lostflops.account.align.match import Matched, match


@dataclass(frozen=True)
class Call:
    """`name` says what it is a record of; no code under test sees it."""

    rank: int
    start: int
    stop: int
    seq: int = -1
    op: str | None = "all_reduce"
    group: str | None = "g"
    size: int = 100
    lane: int = 7
    peer: int = -1
    step: int = -1
    on_host: bool = False
    name: str = ""

    def but(self, **changes: object) -> Call:
        return replace(self, **changes)  # type: ignore[arg-type]


Meeting = dict[int, str]
"""Names of what each rank brought to it."""


@dataclass(frozen=True)
class Made:
    calls: CollectiveCalls
    names: list[str]

    def meetings(
        self, sizes: dict[str, int] | None = None, hosts: dict[int, str | None] | None = None
    ) -> list[Meeting]:
        return named(match(self.calls, sizes or {}, hosts or {}), self.names)


def made(*listed: Call) -> Made:
    rows = sorted(listed, key=lambda call: (call.rank, call.start))
    groups = sorted({call.group for call in rows if call.group is not None})
    ops = sorted({call.op for call in rows if call.op is not None})

    def column(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array(values, np.int64)

    calls = CollectiveCalls(
        rank=column([call.rank for call in rows]),
        event=column([1_000 + place for place in range(len(rows))]),
        lane=column([call.lane for call in rows]),
        group=column([-1 if call.group is None else groups.index(call.group) for call in rows]),
        op=column([-1 if call.op is None else ops.index(call.op) for call in rows]),
        size=column([call.size for call in rows]),
        seq=column([call.seq for call in rows]),
        peer=column([call.peer for call in rows]),
        step=column([call.step for call in rows]),
        start=column([call.start for call in rows]),
        stop=column([call.stop for call in rows]),
        on_host=np.array([call.on_host for call in rows], np.bool_),
        groups=tuple(groups),
        ops=tuple(ops),
    )
    return Made(calls, [call.name for call in rows])


def named(matched: Matched, names: list[str]) -> list[Meeting]:
    """Meetings of all channels, in order of channel and of the rows of the first member that was there."""
    found = []
    for channel in matched.channels:
        for rows in channel.rows.T.tolist():
            pairs = zip(channel.members.tolist(), rows, strict=True)
            found.append({rank: names[row] for rank, row in pairs if row >= 0})
    return found
