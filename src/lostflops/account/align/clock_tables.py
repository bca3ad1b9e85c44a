"""Tables `clocks` and `arrivals` of a run, from its collectives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lostflops.account.align.calls import Query, read_calls
from lostflops.account.align.clocks import clocks
from lostflops.account.align.common_clock import Clocks, Readings
from lostflops.account.align.match import Matched, match
from lostflops.account.align.waits import BASES, UNKNOWN, Arrivals, arrivals
from lostflops.store.parquet import ColumnData, TextColumn

Columns = Mapping[str, ColumnData]
_NUMBERS: Final = tuple(name for name in Arrivals.__slots__ if name != "basis")


class Aligned:
    """Clocks and meetings of a run."""

    def __init__(
        self,
        query: Query,
        collectives: str,
        sizes: Mapping[str, int],
        hosts: Mapping[int, str | None],
        readings: Readings | None = None,
    ) -> None:
        """Match the calls in the relation `collectives`, and align the clocks; `hosts` names every rank of the run."""
        ranks = np.array(sorted(hosts), np.int64)
        self._matched = match(read_calls(query, collectives), sizes, hosts)
        if not all(channel.is_numbered for channel in self._matched.channels):
            self._matched = _again(self._matched, _surest(self._matched, ranks, hosts), sizes)
        self._told = clocks(self._matched, ranks, hosts, readings)

    def clocks(self) -> Columns:
        told, tied = self._told, self._told.tied
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
            "matched": self._matched_by_rank(),
            "unmatched": np.bincount(
                told.place(self._matched.calls.rank[self._matched.alone]), minlength=told.ranks.size
            ),
        }

    def arrivals(self) -> Iterator[tuple[list[int], Columns]]:
        """Yield the rows of some ranks at a time, with these ranks."""
        for part in arrivals(self._matched, self._told):
            numbers: dict[str, ColumnData] = {name: getattr(part, name) for name in _NUMBERS}
            columns = {**numbers, "basis": TextColumn(part.basis.astype(np.uint32), BASES)}
            yield np.unique(part.rank).tolist(), columns

    def _matched_by_rank(self) -> npt.NDArray[np.int64]:
        counts = np.zeros(self._told.ranks.size, np.int64)
        for channel in self._matched.channels:
            seen = channel.rows >= 0
            counts[self._told.place(channel.members)] += (seen & (seen.sum(axis=0) > 1)).sum(axis=1)
        return counts


def _surest(matched: Matched, ranks: npt.NDArray[np.int64], hosts: Mapping[int, str | None]) -> Clocks:
    """Estimate clocks from the calls that most certainly belong together and still tie all ranks."""
    for chosen in (
        [channel for channel in matched.channels if channel.is_numbered],
        [channel for channel in matched.channels if not channel.is_p2p],
    ):
        told = clocks(replace(matched, channels=tuple(chosen)), ranks, hosts) if chosen else None
        if told is not None and told.tied.all():
            return told
    return clocks(matched, ranks, hosts)


def _again(matched: Matched, told: Clocks, sizes: Mapping[str, int]) -> Matched:
    """Match again with all times on the common clock: this resolves what two ranks alone could not."""
    calls = matched.calls
    place = told.place(calls.rank)
    tied = told.tied[place]
    start, stop = (np.where(tied, told.to_reference(place, times), times) for times in (calls.start, calls.stop))
    one_clock = {
        rank: "common" if is_tied else None for rank, is_tied in zip(told.ranks.tolist(), told.tied, strict=True)
    }
    found = match(replace(calls, start=start, stop=stop), sizes, one_clock)
    return replace(found, calls=replace(found.calls, start=calls.start, stop=calls.stop))


def _whole(values: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    known = np.isfinite(values)
    return np.where(known, np.where(known, values, 0).astype(np.int64), UNKNOWN)
