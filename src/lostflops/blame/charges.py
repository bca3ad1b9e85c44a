"""Whose fault a wait is: charged to the last to arrive, and passed on where that one had been held up itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lostflops.blame.comparison import Codes, Comparison, Floats
from lostflops.ledger.profile import Profile

_MOST_HOPS = 64


def charges(profiles: Sequence[Profile], comparison: Comparison, origins: Sequence[int]) -> Floats:
    """Exposed waiting of all ranks by the rank that it is charged to, in the order of the comparison's ranks.

    A rank that is no origin passes on what it inherited, to those that it waited for: the part of its lateness that it
    spent waiting beyond its cohort.
    """
    waiter, late, ns = _waits(profiles, comparison.ranks)
    charge = np.zeros(comparison.ranks.size)
    np.add.at(charge, late, ns)
    if not origins:
        return charge
    passed_on = _inherited(comparison)
    passed_on[[comparison.place(rank) for rank in origins]] = 0.0
    total = np.zeros(charge.size)
    np.add.at(total, waiter, ns)
    share = ns / np.maximum(total[waiter], 1)
    passed_on[total == 0] = 0.0
    for _ in range(_MOST_HOPS):
        moving = charge * passed_on
        if moving.sum() < 1:
            break
        charge -= moving
        np.add.at(charge, late, moving[waiter] * share)
    return charge


def _waits(profiles: Sequence[Profile], ranks: Codes) -> tuple[Codes, Codes, Floats]:
    """Places of who waited and for whom, and how long; of ranks that are compared."""
    rows = [(one.rank, late, ns) for one in profiles for late, ns in one.waited.items() if ns]
    table = np.array(rows, np.int64).reshape(-1, 3)
    table = table[np.isin(table[:, 1], ranks)]
    return np.searchsorted(ranks, table[:, 0]), np.searchsorted(ranks, table[:, 1]), table[:, 2].astype(np.float64)


def _inherited(comparison: Comparison) -> Floats:
    waited, own = np.maximum(comparison.waited, 0.0), np.maximum(comparison.excess, 0.0)
    return np.asarray(waited / np.maximum(waited + own, 1.0))
