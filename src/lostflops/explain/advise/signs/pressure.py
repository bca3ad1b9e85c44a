"""Time that ranks wait for a CPU core, and which late ranks that explains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.core.errors import UnknownCost
from lostflops.explain.advise.signs.series import series

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case
    from lostflops.explain.advise.signs.series import Values

_OFTEN: Final = 0.7
"""A rank must wait longer for a core than its peers in at least this part of the settled steps."""
_FEWEST: Final = 8
_MORE: Final = 1.3
"""A rank that uses more than this many times the CPU time of its peers does more work: it is not short of cores."""
_LEAST: Final = 0.05
"""A rank must wait longer than its peers by at least this share of a step, in the median."""


@dataclass(frozen=True, slots=True)
class Pressure:
    """Waits for CPU cores by settled step and rank, as shares of the step."""

    ranks: tuple[int, ...]
    step: tuple[int, ...]
    queued: Values
    """Time in which the training thread could run and waited for a core."""
    cpu: Values
    """Time in which it had a core."""

    def of(self, rank: int) -> Values:
        """Return the waits of a rank by step."""
        found: Values = self.queued[:, self.ranks.index(rank)]
        return found

    def beyond(self, rank: int) -> Values:
        """Return by step how much longer the rank waits than its peers would for as much CPU time: a rank that computes
        more on a busy host also waits more for cores."""
        others = [at for at, one in enumerate(self.ranks) if one != rank]
        if not others:
            return np.zeros(len(self.step))
        shares = self.queued[:, others] / np.maximum(self.cpu[:, others], 1e-9)
        usual, known = np.full(len(self.step), np.nan), np.isfinite(shares).any(axis=1)
        usual[known] = np.nanmedian(shares[known], axis=1)
        return np.asarray(self.of(rank) - usual * self.cpu[:, self.ranks.index(rank)])

    def works_more(self, rank: int) -> bool:
        """Return whether the rank uses more CPU time than its peers, which then explains why it is late."""
        others = [at for at, one in enumerate(self.ranks) if one != rank]
        own, usual = np.nanmedian(self.cpu[:, self.ranks.index(rank)]), np.nanmedian(self.cpu[:, others])
        return bool(own > _MORE * usual)


def pressure(case: Case) -> Pressure | None:
    """Return the waits for cores; None if the collector did not record them."""
    try:
        timed = series(case)
    except UnknownCost:
        return None
    rows = timed.settled
    whole, queued, cpu = (timed.column(name)[rows] for name in ("stop - start", "queued", "cpu"))
    if not (np.isfinite(queued) & np.isfinite(cpu)).any():
        return None
    return Pressure(timed.ranks, tuple(timed.step[rows].tolist()), queued / whole, cpu / whole)


def stretch(case: Case) -> float:
    """Return the factor by which waits for cores lengthen the work of training threads; 1 if unknown. CPU time times
    this factor is the step time that it takes."""
    try:
        timed = series(case)
    except UnknownCost:
        return 1.0
    cpu, queued = (timed.column(name)[timed.settled] for name in ("cpu", "queued"))
    known = np.isfinite(cpu) & np.isfinite(queued) & (cpu > 0)
    return float(np.median((cpu[known] + queued[known]) / cpu[known])) if known.any() else 1.0


def find_cpu_starved_ranks(case: Case) -> dict[int, float]:
    """Return the ranks that wait longer for a core than their peers in most settled steps, with the median of how much
    longer, as a share of the step."""
    found = pressure(case)
    if found is None or len(found.step) < _FEWEST or len(found.ranks) < 2:
        return {}
    more = {rank: found.beyond(rank) for rank in found.ranks if not found.works_more(rank)}
    return {
        rank: float(np.nanmedian(values))
        for rank, values in more.items()
        if np.isfinite(values).any() and np.nanmedian(values) >= _LEAST and np.nanmean(values > _LEAST) >= _OFTEN
    }
