"""Lateness of each rank at its collectives: its arrival after the median arrival, on the common clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.facts.clock_error import RESOLUTION
from lostflops.account.ledger.scope import Scope
from lostflops.account.ledger.windows import WindowKind
from lostflops.core.results import Section

if TYPE_CHECKING:
    from lostflops.store.run import Run

_MIDDLE: Final = """
    with middle as (
        select meeting, quantile_disc(arrived, 0.5) as arrived from arrivals
        where arrived is not null and not is_transfer {steps} group by meeting having count(*) > 1
    )"""
"""Median arrival at meetings of two ranks or more on the common clock: a rank alone is its own median."""
_BY_RANK: Final = f"""{_MIDDLE}
    select rank, avg(a.arrived - middle.arrived) from arrivals a join middle using (meeting)
    where a.arrived is not null group by rank"""
_BY_STEP: Final = f"""{_MIDDLE}
    select rank, a.step, avg(a.arrived - middle.arrived) from arrivals a join middle using (meeting)
    where a.arrived is not null and a.step is not null group by rank, a.step"""


def within(asked: Scope) -> str:
    """Return the condition for rows of `arrivals` or `events` in the window; all rows if no row has a step."""
    if asked.steps:
        return f"and step in ({', '.join(map(str, asked.steps))})"
    if asked.kind is WindowKind.TRACE:
        return ""
    return "and (step is not null or not exists (from arrivals where step is not null))"


def by_rank(run: Run, asked: Scope, clock: Section) -> dict[int, float]:
    """Return the mean lateness of each rank, in ns; 0 if the distance of the ends of its collectives explains it."""
    found: dict[int, float] = dict(run.rows(_BY_RANK.format(steps=within(asked))))
    told = _Told(clock)
    return {rank: ns if told.tells(rank, ns) else 0.0 for rank, ns in found.items()}


def by_step(run: Run, asked: Scope, clock: Section) -> dict[tuple[int, int], float]:
    """Return the mean lateness by rank and step, as `by_rank` does."""
    told = _Told(clock)
    found = run.rows(_BY_STEP.format(steps=within(asked)))
    return {(rank, step): ns if told.tells(rank, ns) else 0.0 for rank, step, ns in found}


class _Told:
    """Test of a lateness against the distance of the ends of collectives, the `spread` of each rank."""

    def __init__(self, clock: Section) -> None:
        self._spread = {row[0]: int(row[5] or 0) for row in clock.table.rows}
        self._usual = float(np.median(list(self._spread.values()))) if self._spread else 0.0

    def tells(self, rank: int, ns: float) -> bool:
        return abs(ns) > RESOLUTION * (self._spread.get(rank, 0) + self._usual)
