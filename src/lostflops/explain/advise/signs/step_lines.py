"""Ledger lines by rank and step of the recorded window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lostflops.account.ledger.lines import LINES

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case
    from lostflops.explain.advise.claim import Place

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Traced:
    """The recorded steps that all ranks have."""

    ranks: tuple[int, ...]
    step: npt.NDArray[np.int64]
    lines: npt.NDArray[np.int64]
    """Time by rank, step and line of the ledger, in ns."""

    @property
    def ns(self) -> Values:
        """Time of each step: the median of ranks."""
        found: Values = np.median(self.lines.sum(axis=2), axis=0)
        return found

    def line(self, name: str) -> Values:
        """Return a line of the ledger by rank and step."""
        return self.lines[:, :, LINES.index(name)].astype(np.float64)

    def beyond(self, usual: Values, is_claimed: Callable[[str], bool] = lambda _: True) -> dict[Place, int]:
        """Return the time of these steps in excess of `usual`, which is given by rank and line, for the lines that are
        claimed."""
        more = np.maximum(self.lines - usual[:, None, :], 0).sum(axis=1)
        return {
            (rank, line): int(more[row, at])
            for row, rank in enumerate(self.ranks)
            for at, line in enumerate(LINES)
            if is_claimed(line) and more[row, at] >= 1
        }


def collect_traced_steps(case: Case) -> Traced | None:
    """Return the steps that all ranks have; None if they have no steps in common."""
    profiles = case.profiles
    common = sorted(set.intersection(*(set(one.steps.tolist()) for one in profiles)) - {-1}) if profiles else []
    if not common:
        return None
    step = np.array(common, np.int64)
    lines = np.stack([one.lines[np.isin(one.steps, step)] for one in profiles])
    return Traced(tuple(one.rank for one in profiles), step, lines)
