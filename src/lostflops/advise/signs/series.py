"""Steps over time as the collector timed them: columns by step and rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from lostflops.errors import UnknownCost
from lostflops.pace.timings import PACED, within

if TYPE_CHECKING:
    from lostflops.advise.case import Case
    from lostflops.store.run import Run

Values = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_MOST_RANKS: Final = 64
"""Of more, so many from first to last: what all ranks do shows in these."""
_STEPS: Final = f"""
    with {PACED}
    select step, ns, settled, compiled, profiled, is_first from paced order by step"""


@dataclass(frozen=True, slots=True)
class Series:
    """Steps of the attempt whose pace is told, in order. `ns` is the time of each, the median of its ranks; `settled`
    are those that are not the first, and neither compiled nor profiled."""

    run: Run
    attempt: int
    ranks: tuple[int, ...]
    step: npt.NDArray[np.int64]
    ns: Values
    settled: Flags
    compiled: Flags
    profiled: Flags
    first: Flags

    def column(self, expression: str) -> Values:
        """Of table `timings`, by step and rank; NaN where it is not told."""
        found = self.run.sql(
            f"""select rank, step, ({expression})::double as value from timings
                where {within(self.ranks, self.attempt)} and ({expression}) is not null"""
        ).fetchnumpy()
        values = np.full((self.step.size, len(self.ranks)), np.nan)
        rows = np.searchsorted(self.step, np.asarray(found["step"]))
        values[rows, np.searchsorted(self.ranks, np.asarray(found["rank"]))] = np.asarray(found["value"])
        return values


def series(case: Case) -> Series:
    """Raises `UnknownCost` where no step was timed."""
    if case.told is None:
        raise UnknownCost("the collector did not time the steps: record with lostflops run")
    run, attempt = case.run, case.told.pace.attempt
    timed = [
        rank
        for (rank,) in run.sql(f"select distinct rank from timings where attempt = {attempt} order by 1").fetchall()
    ]
    places = np.unique(np.linspace(0, len(timed) - 1, min(len(timed), _MOST_RANKS)).round().astype(int))
    ranks = tuple(timed[place] for place in places)
    found = run.sql(_STEPS.format(within=within(ranks, attempt))).fetchnumpy()
    step, ns = np.asarray(found["step"], np.int64), np.asarray(found["ns"], np.float64)
    flags = (np.asarray(found[name], np.bool_) for name in ("settled", "compiled", "profiled", "is_first"))
    return Series(run, attempt, ranks, step, ns, *flags)
