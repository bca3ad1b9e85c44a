"""Times of ranks on the common clock; ranks that nothing ties to it keep their own clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.align.calls import Ns

if TYPE_CHECKING:
    from lostflops.store.run import Run

_CLOCKS: Final = """
    select rank, correction, coalesce(drift, 0) / 1e6, coalesce(instant, 0) from clocks where correction is not null"""


class OneClock:
    """Corrections of the ranks that are tied to the reference: offset, drift per ns, and the instant of the offset."""

    def __init__(self, corrections: dict[int, tuple[int, float, int]]) -> None:
        self._corrections = corrections

    @classmethod
    def of(cls, run: Run) -> OneClock:
        return cls({rank: (offset, drift, instant) for rank, offset, drift, instant in run.rows(_CLOCKS)})

    def ties(self, rank: int) -> bool:
        return rank in self._corrections

    def to_common(self, rank: int, times: Ns) -> Ns:
        """Convert a rank's own times to the common clock.

        >>> OneClock({1: (50, 1e-3, 0)}).to_common(1, np.array([0, 1950])).tolist()
        [50, 2002]
        """
        offset, drift, instant = self._corrections.get(rank, (0, 0.0, 0))
        moved = times + offset
        grown: Ns = moved + np.rint((moved - instant) * drift).astype(np.int64)
        return grown

    def own(self, rank: int, times: Ns) -> Ns:
        """Convert times on the common clock to the rank's own: the inverse of `to_common`, to a ns or so.

        >>> OneClock({1: (50, 1e-3, 0)}).own(1, np.array([50, 2002])).tolist()
        [0, 1950]
        """
        offset, rate, instant = self.terms(rank)
        grown = np.rint((times - instant) * rate).astype(np.int64)
        own: Ns = times - offset - grown
        return own

    def terms(self, rank: int) -> tuple[int, float, int]:
        """Return the offset, the rate and the instant with which `own` converts times.

        >>> OneClock({1: (50, 0.25, 7)}).terms(1)
        (50, 0.2, 7)
        """
        offset, drift, instant = self._corrections.get(rank, (0, 0.0, 0))
        return offset, drift / (1 + drift), instant
