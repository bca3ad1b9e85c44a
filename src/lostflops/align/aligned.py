"""Tables `clocks` and `arrivals` of a run, from its collectives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lostflops.align.calls import Query, read
from lostflops.align.clocks import Clocks, clocks
from lostflops.align.match import Matched, match
from lostflops.align.waits import BASES, UNKNOWN, Arrivals, arrivals
from lostflops.store.parquet import ColumnData, TextColumn

Columns = Mapping[str, ColumnData]


def aligned(
    query: Query, collectives: str, sizes: Mapping[str, int], hosts: Mapping[int, str | None]
) -> tuple[Columns, Columns]:
    """Columns of `clocks` and of `arrivals`; `collectives` is a relation, `hosts` names every rank of the run."""
    matched = match(read(query, collectives), sizes, hosts)
    told = clocks(matched, np.array(sorted(hosts), np.int64), hosts)
    met = arrivals(matched, told)
    return _clock_columns(told, matched, met), _arrival_columns(met)


def _clock_columns(told: Clocks, matched: Matched, met: Arrivals) -> Columns:
    tied = told.tied
    found = (met.event != UNKNOWN) & (met.seen > 1)
    alone = np.bincount(told.place(matched.calls.rank[matched.alone]), minlength=told.ranks.size)
    return {
        "rank": told.ranks,
        "reference": np.full(told.ranks.size, told.reference),
        "method": list(told.method),
        "correction": np.where(tied, told.offset, UNKNOWN),
        "uncertainty": _whole(told.uncertainty),
        "drift": np.where(tied, told.drift * 1e6, np.nan),
        "spread": _whole(np.where(tied, told.spread, np.inf)),
        "instant": np.where(tied, told.instant, UNKNOWN),
        "constraints": told.constraints,
        "matched": np.bincount(told.place(met.rank[found]), minlength=told.ranks.size),
        "unmatched": alone,
    }


def _whole(values: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    known = np.isfinite(values)
    return np.where(known, np.where(known, values, 0).astype(np.int64), UNKNOWN)


def _arrival_columns(met: Arrivals) -> Columns:
    numbers: dict[str, ColumnData] = {name: getattr(met, name) for name in Arrivals.__slots__ if name != "basis"}
    return {**numbers, "basis": TextColumn(met.basis.astype(np.uint32), BASES)}
