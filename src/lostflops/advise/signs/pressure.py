"""How long ranks wait for a core: what else runs on their hosts, and for which rank that explains its lateness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.advise.signs.series import series
from lostflops.errors import UnknownCost

if TYPE_CHECKING:
    from lostflops.advise.case import Case
    from lostflops.advise.signs.series import Values

_OFTEN: Final = 0.7
"""Part of settled steps in which a rank must wait longer for a core than its peers."""
_FEWEST: Final = 8
_LEAST: Final = 0.05
"""Share of a step that it must wait longer, in the median."""


@dataclass(frozen=True, slots=True)
class Pressure:
    """By settled step and rank: the part of the step that the training thread could run and waited for a core."""

    ranks: tuple[int, ...]
    step: tuple[int, ...]
    share: Values

    def of(self, rank: int) -> Values:
        """Return the shares of a rank by step."""
        found: Values = self.share[:, self.ranks.index(rank)]
        return found

    def beyond(self, rank: int) -> Values:
        """Return by step how much longer the rank waits than the median of its peers."""
        others = [at for at, one in enumerate(self.ranks) if one != rank]
        if not others:
            return np.zeros(len(self.step))
        return np.asarray(self.of(rank) - np.nanmedian(self.share[:, others], axis=1))


def pressure(case: Case) -> Pressure | None:
    """Return None where the collector recorded no waits for cores."""
    try:
        timed = series(case)
    except UnknownCost:
        return None
    rows = timed.settled
    with np.errstate(invalid="ignore"):
        share = timed.column("queued")[rows] / timed.column("stop - start")[rows]
    if not np.isfinite(share).any():
        return None
    return Pressure(timed.ranks, tuple(timed.step[rows].tolist()), share)


def stretch(case: Case) -> float:
    """Return by what factor waits for cores lengthen what training threads do, 1 where that is not known: CPU time
    times this is the time of the step that it takes."""
    try:
        timed = series(case)
    except UnknownCost:
        return 1.0
    cpu, queued = (timed.column(name)[timed.settled] for name in ("cpu", "queued"))
    known = np.isfinite(cpu) & np.isfinite(queued) & (cpu > 0)
    return float(np.median((cpu[known] + queued[known]) / cpu[known])) if known.any() else 1.0


def squeezed(case: Case) -> dict[int, float]:
    """Return the ranks that wait longer for a core than their peers in most settled steps, with the median of how much
    longer, as a share of the step."""
    found = pressure(case)
    if found is None or len(found.step) < _FEWEST or len(found.ranks) < 2:
        return {}
    more = {rank: found.beyond(rank) for rank in found.ranks}
    return {
        rank: float(np.nanmedian(values))
        for rank, values in more.items()
        if np.isfinite(values).any() and np.nanmedian(values) >= _LEAST and np.nanmean(values > _LEAST) >= _OFTEN
    }
