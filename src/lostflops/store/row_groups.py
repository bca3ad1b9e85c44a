"""Rows grouped by a number that each has, with one sort instead of one pass over all rows for each number."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]


def group_rows(keys: npt.NDArray[np.integer]) -> Iterator[tuple[int, Rows]]:
    """Yield each number that occurs, in order, with the rows that have it, in order.

    >>> [(key, rows.tolist()) for key, rows in group_rows(np.array([7, 3, 7]))]
    [(3, [1]), (7, [0, 2])]
    >>> list(group_rows(np.empty(0, np.int64)))
    []
    """
    order = np.argsort(keys, kind="stable")
    found, first = np.unique(keys[order], return_index=True)
    for key, rows in zip(found.tolist(), np.split(order, first[1:]), strict=False):
        yield int(key), rows
