"""Columns of several ranks at once, from one query each, and texts as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from lostflops.store.run import Run

Codes = npt.NDArray[np.int64]


class RankBatch:
    """Rows of several ranks, to be taken rank by rank."""

    def __init__(self, run: Run, query: str, ranks: Sequence[int]) -> None:
        columns: dict[str, Any] = run.columns(query)
        rank = columns.pop("rank")
        if len(ranks) > 1:
            order = np.argsort(rank, kind="stable")
            rank = rank[order]
            columns = {name: values[order] for name, values in columns.items()}
        self._columns = columns
        # Asked for one by one, each would turn the whole column into numbers of its own type first.
        asked = np.asarray(ranks, rank.dtype)
        edges = (np.searchsorted(rank, asked, side).tolist() for side in ("left", "right"))
        self._edges = dict(zip(ranks, zip(*edges, strict=True), strict=True))

    def of(self, rank: int) -> dict[str, Any]:
        first, last = self._edges[rank]
        return {name: np.asarray(values[first:last]) for name, values in self._columns.items()}


class BatchVocabulary:
    """Texts by their hashes: DuckDB hashes a column in the time it takes to read it, and numbers are small."""

    def __init__(self, run: Run, key: str, values: str, rows: str) -> None:
        found = run.rows(f"select distinct {key} as key, {values} from {rows}")
        found.sort(key=lambda row: row[0])
        self._keys = np.array([key for key, *_ in found], np.uint64)
        self.values: tuple[tuple[str, ...], ...] = tuple(tuple(texts) for _, *texts in found)

    def codes(self, keys: npt.NDArray[np.uint64]) -> Codes:
        return np.searchsorted(self._keys, keys).astype(np.int64)
