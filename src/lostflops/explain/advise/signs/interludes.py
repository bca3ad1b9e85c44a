"""Checkpoints and evaluations between steps: on which ranks, how often, and how much longer they make steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.ledger.lines import HOST_LINES, WAIT_LINES
from lostflops.core.errors import UnknownCost
from lostflops.core.units import pluralise
from lostflops.explain.advise.signs.extra_time import saving_of_extra_time
from lostflops.explain.advise.signs.series import series

if TYPE_CHECKING:
    from lostflops.core.estimate import Estimate
    from lostflops.explain.advise.case import Case
    from lostflops.explain.advise.claim import Place
    from lostflops.explain.advise.signs.series import Flags, StepSeries, Values

LEAST: Final = 1_000_000
"""A step has an interlude only if that takes at least this many ns."""
_FEWEST: Final = 2
"""At least this many steps must have an interlude: otherwise it is unknown how often it comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interlude:
    """Work between steps that comes now and then, such as checkpoints."""

    steps: tuple[int, ...]
    """Steps that have it."""
    of: int
    """Number of steps that were examined."""
    ranks: tuple[int, ...]
    """Ranks on which it runs."""
    every: int
    """Number of steps from one to the next; 0 if it comes at irregular times."""
    each: float
    """Mean time of one, in ns."""
    saving: Estimate
    alone: bool
    """Some ranks do not have it: they wait."""

    @property
    def often(self) -> str:
        if self.every > 1:
            return f"every {self.every} steps"
        return "in every step" if self.every else "at irregular times"


def interlude(case: Case, column: str, what: str) -> Interlude | None:
    """Return what a column of table `timings` shows; None if too few steps have it. Raise `UnknownCost` if the
    collector did not record it."""
    timed = series(case)
    spent = timed.column(column)
    if not np.isfinite(spent).any():
        raise UnknownCost(f"{what} was not recorded: record again with this version of Lostflops")
    rows = timed.settled if timed.settled.sum() >= _FEWEST else ~timed.first
    spent, ns = np.nan_to_num(spent[rows]), timed.ns[rows]
    longest = spent.max(axis=1, initial=0.0)
    has = longest >= LEAST
    if has.sum() < _FEWEST:
        return None
    steps = timed.step[rows][has]
    ranks = tuple(np.array(timed.ranks)[(spent[has] >= LEAST).mean(axis=0) >= 0.5].tolist())
    return Interlude(
        steps=tuple(steps.tolist()),
        of=int(has.size),
        ranks=ranks,
        every=_distance(steps),
        each=float(longest[has].mean()),
        saving=_measure_saving(longest, ns, has, what),
        alone=len(ranks) < len(timed.ranks),
    )


def _distance(steps: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
    """Return the distance that most steps have to the step before them in the list; 0 if there is no such distance.

    >>> _distance(np.array([5, 10, 15, 20])), _distance(np.array([5, 6, 17]))
    (5, 0)
    """
    apart, count = np.unique(np.diff(steps), return_counts=True)
    return int(apart[count.argmax()]) if count.max() > count.sum() / 2 else 0


def _measure_saving(longest: Values, ns: Values, has: Flags, what: str) -> Estimate:
    """Return the extra time of these steps compared with the others, at most the recorded time: other ranks may compute
    meanwhile."""
    whole = float(ns.sum())
    usual = float(np.median(ns[~has])) if (~has).sum() >= _FEWEST else None
    most = longest[has]
    lost = most if usual is None else np.clip(ns[has] - usual, 0.0, most)
    source = f"the extra time of {what} in {pluralise(lost.size, 'step')} of {has.size:,}"
    found = saving_of_extra_time(lost, whole, source)
    return replace(found, high=min(max(found.ends[1], float(most.sum()) / whole), 1.0))


def in_window(case: Case, column: str) -> dict[Place, int]:
    """Return the time that it takes on the ledger: that of the ranks that do it, and the waits of the others."""
    timed: StepSeries = series(case)
    inside = np.isin(timed.step, sorted(case.total.steps))
    spent = np.nan_to_num(timed.column(column)[inside])
    longest = float(spent.max(axis=1, initial=0.0).sum())
    found: dict[Place, int] = {}
    for rank, own in zip(timed.ranks, spent.sum(axis=0).tolist(), strict=True):
        lines = case.lines.get(rank)
        if lines is None:
            continue
        left = {"own": own, "waits": max(longest - own, 0.0)}
        for line in (*reversed(HOST_LINES), "copy", "compute", *WAIT_LINES):
            kind = "waits" if line in WAIT_LINES else "own"
            taken = min(lines[line], round(left[kind]))
            left[kind] -= taken
            if taken:
                found[rank, line] = taken
    return found
