"""Collectives and transfers of all ranks, as columns of numbers. This module knows tables, not rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Ns = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Query = Callable[[str], Mapping[str, npt.NDArray[Any]]]
"""SQL to columns."""

SEND: Final = "send"
RECV: Final = "recv"
BARRIERS: Final = frozenset({"all_reduce", "all_gather", "reduce_scatter", "barrier", "all_to_all"})
"""No rank can finish one of these before every rank has started."""
_SAME_SIZE: Final = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
"""Ranks agree on the size of these; splits of others may differ."""


@dataclass(frozen=True, slots=True)
class Calls:
    """One row per call and rank, in order of rank and start. Unknown numbers are -1; `group` is an index into `groups`,
    `op` into `ops`."""

    rank: Codes
    event: Codes
    lane: Codes
    group: Codes
    op: Codes
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
        """Which rows are of one of these operations."""
        wanted = np.array([op in ops for op in self.ops] or [False], np.bool_)
        return (self.op >= 0) & wanted[self.op]


def read(query: Query, collectives: str) -> Calls:
    """The calls in a relation with the columns of table `collectives`."""
    groups = _texts(query, f"select distinct group_id as text from {collectives} where group_id is not null order by 1")
    ops = _texts(query, f"select distinct op as text from {collectives} where op is not null order by 1")
    sized = ", ".join(f"'{op}'" for op in _SAME_SIZE)
    columns = query(
        f"""
        select c.rank, event, coalesce(lane, -1) as lane, coalesce(g.code, -1) as "group", coalesce(o.code, -1) as op,
               case when c.op in ({sized}) then coalesce(bytes_in, bytes_out, -1) else -1 end as size,
               coalesce(seq, -1) as seq, coalesce(peer, -1) as peer, coalesce(step, -1) as step, c.start, c.stop,
               coalesce(metadata = 'gloo', false) as on_host
        from {collectives} c
        left join ({_codes(groups)}) g on c.group_id = g.text left join ({_codes(ops)}) o on c.op = o.text
        where event is not null and c.start is not null and c.stop >= c.start
        order by c.rank, c.start, event"""
    )
    whole = {name: np.asarray(values) for name, values in columns.items()}
    flags = whole.pop("on_host").astype(np.bool_)
    numbers = {name: values.astype(np.int64, copy=False) for name, values in whole.items()}
    return Calls(**numbers, on_host=flags, groups=groups, ops=ops)


def _texts(query: Query, sql: str) -> tuple[str, ...]:
    return tuple(query(sql)["text"].tolist())


def _codes(texts: tuple[str, ...]) -> str:
    """A relation of each text with its place."""
    if not texts:
        return "select null::varchar as text, 0 as code where false"
    listed = ", ".join("'" + text.replace("'", "''") + "'" for text in texts)
    return f"select unnest([{listed}]) as text, unnest(range({len(texts)})) as code"
