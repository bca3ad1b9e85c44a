"""Collectives and transfers of all ranks, as columns of numbers. This module knows tables, not rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Ns = npt.NDArray[np.int64]
Codes = npt.NDArray[np.integer]
Flags = npt.NDArray[np.bool_]
Query = Callable[[str], Mapping[str, npt.NDArray[Any]]]
"""A function from SQL to columns."""

SEND: Final = "send"
RECV: Final = "recv"
BARRIERS: Final = frozenset({"all_reduce", "all_gather", "reduce_scatter", "barrier", "all_to_all"})
"""No rank can finish one of these before every rank has started."""
_SAME_SIZE: Final = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
"""Ranks agree on the size of these; splits of others may differ."""
ROWS_AT_ONCE: Final = 1_000_000
_USABLE: Final = "event is not null and start is not null and stop >= start"
_TYPES: Final = {
    **dict.fromkeys(("rank", "lane", "group", "op", "peer", "step"), np.int32),
    **dict.fromkeys(("event", "size", "seq", "start", "stop"), np.int64),
    "on_host": np.bool_,
}
"""Small types, because ten million calls must fit in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCalls:
    """Calls of all ranks, a row per call and rank, in order of rank and start; unknown numbers are -1."""

    rank: Codes
    event: Codes
    lane: Codes
    group: Codes
    """Index into `groups`."""
    op: Codes
    """Index into `ops`."""
    size: Codes
    seq: Codes
    peer: Codes
    step: Codes
    start: Ns
    stop: Ns
    on_host: Flags
    groups: tuple[str, ...]
    ops: tuple[str, ...]

    def __len__(self) -> int:
        return int(self.rank.size)

    def having(self, ops: frozenset[str]) -> Flags:
        """Return which rows are of one of these operations."""
        wanted = np.array([op in ops for op in self.ops] or [False], np.bool_)
        return (self.op >= 0) & wanted[self.op]


def read_calls(query: Query, collectives: str) -> CollectiveCalls:
    """Read the calls of a relation with the columns of table `collectives`, some ranks at a time."""
    groups = _texts(query, f"select distinct group_id as text from {collectives} where group_id is not null order by 1")
    ops = _texts(query, f"select distinct op as text from {collectives} where op is not null order by 1")
    counts = query(f"select rank, count(*) as n from {collectives} where {_USABLE} group by rank order by rank")
    total = int(counts["n"].sum()) if len(counts["n"]) else 0
    columns: dict[str, Any] = {name: np.empty(total, dtype) for name, dtype in _TYPES.items()}
    select = _select(collectives, groups, ops)
    filled = 0
    for first, last in _ranges(counts["rank"], counts["n"]):
        part = query(select.format(first=first, last=last))
        for name, values in columns.items():
            values[filled : filled + len(part[name])] = part[name]
        filled += len(part["rank"])
    return CollectiveCalls(**columns, groups=groups, ops=ops)


def _ranges(ranks: npt.NDArray[Any], counts: npt.NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Yield first and last rank of stretches with about `ROWS_AT_ONCE` rows."""
    stretch = np.cumsum(counts) // ROWS_AT_ONCE
    for number in np.unique(stretch).tolist():
        own = ranks[stretch == number]
        yield int(own[0]), int(own[-1])


def _select(collectives: str, groups: tuple[str, ...], ops: tuple[str, ...]) -> str:
    sized = ", ".join(f"'{op}'" for op in _SAME_SIZE)
    return f"""
        select c.rank, event, coalesce(lane, -1) as lane, coalesce(g.code, -1) as "group", coalesce(o.code, -1) as op,
               case when c.op in ({sized}) then coalesce(bytes_in, bytes_out, -1) else -1 end as size,
               coalesce(seq, -1) as seq, coalesce(peer, -1) as peer, coalesce(step, -1) as step, c.start, c.stop,
               coalesce(metadata = 'gloo', false) as on_host
        from {collectives} c
        left join ({_codes(groups)}) g on c.group_id = g.text left join ({_codes(ops)}) o on c.op = o.text
        where {_USABLE} and rank between {{first}} and {{last}}
        order by c.rank, c.start, event"""


def _texts(query: Query, sql: str) -> tuple[str, ...]:
    return tuple(query(sql)["text"].tolist())


def _codes(texts: tuple[str, ...]) -> str:
    """Return a relation of each text with its index."""
    if not texts:
        return "select null::varchar as text, 0 as code where false"
    listed = ", ".join("'" + text.replace("'", "''").replace("{", "{{").replace("}", "}}") + "'" for text in texts)
    return f"select unnest([{listed}]) as text, unnest(range({len(texts)})) as code"
