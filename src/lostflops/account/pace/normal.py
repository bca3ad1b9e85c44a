"""The normal step of a job: the time of its timed steps that nothing but training slowed down.

`timings` says which steps are normal. Their time is the mean without the fastest and the slowest fifth, as in
`lostflops diff`, so that one stall on a shared machine does not move it. Only steps of the attempt of the deep window
count: an earlier attempt may have run elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.pace.blocks import Location, Times, typical
from lostflops.account.pace.timings import PACED, choose_pace, paces, within

if TYPE_CHECKING:
    from lostflops.store.run import Run

FEWEST: Final = 8
"""Fewest normal steps that describe the job better than the profiled ones."""
UNLIKE: Final = 1.1
"""Ratio of profiled to normal step time, or its inverse, from which answers mention the difference."""
_PARTS: Final = 4
_TRACED: Final = """
    with begun as (select rank, min(start) as start from steps group by rank)
    select max(attempt) from attempts join begun using (rank)
    where begun.start between attempts.start and attempts.stop"""
_TRACED_KINDS: Final = """
    select distinct kind_of_step from timings where kind_of_step is not null and step in (select step from steps)"""
_NORMAL: Final = f"""
    with {PACED}
    select ns from paced where settled order by step"""


@dataclass(frozen=True, slots=True)
class NormalSteps:
    """Normal steps of one attempt."""

    attempt: int
    times: Times
    """In ns, in the order of the steps; the time of a step is the median of its ranks."""
    location: Location

    @property
    def drift(self) -> float:
        """Standard deviation of the level between quarters of the steps, as a part of it, without that of single steps.

        It shows what lasts for many steps, such as other jobs on the machine.
        """
        levels = [float(np.median(part)) for part in np.array_split(self.times, _PARTS)]
        by_level = (float(np.std(levels, ddof=1)) / self.location.value) ** 2
        return sqrt(max(by_level - _PARTS * self.location.error**2, 0.0))


def normal_steps(run: Run) -> NormalSteps | None:
    """Return the normal steps of the attempt that the deep window is of; None if fewer than `FEWEST` were timed, or if
    the window has steps of several kinds: it shows no single step."""
    if len(run.rows(_TRACED_KINDS)) > 1:
        return None
    attempt = traced_attempt(run)
    if attempt is None:
        pace = choose_pace(paces(run))
        attempt = None if pace is None else pace.attempt
    if attempt is None:
        return None
    columns = run.columns(_NORMAL.format(within=within((), attempt)))
    times = np.asarray(columns["ns"], np.float64)
    if times.size < FEWEST or not times.min() > 0:
        return None
    return NormalSteps(attempt, times, typical(times))


def traced_attempt(run: Run) -> int | None:
    """Return the attempt that the deep window was recorded in; None if no attempt is known."""
    ((attempt,),) = run.rows(_TRACED)
    return None if attempt is None else int(attempt)
