"""Decide who is late: the one verdict that the report, the answer about ranks and the diagnosis share.

A deep window holds a few steps, in which a rank of a shared machine may well be slow by chance. So where the timings of
the whole job show in which order ranks enqueue their collectives, that habit decides, and the window only explains on
which line the rank loses its time. Without timings the steps of the window must agree with each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from lostflops.blame.comparison import Comparison
    from lostflops.blame.stragglers import Straggler

SMALLEST: Final = 0.03
"""Share of a step that the median lateness of a rank must reach."""
PROVEN: Final = 0.01
"""Chance of being the last so often, below which it is not chance."""
LIKELY: Final = 0.05
_CHANCE: Final = 0.3
"""Chance of being the last so often in the window, above which the window shows no lateness."""
FEWEST: Final = 8
"""Timed steps from which on they show a habit."""
OFTEN: Final = 0.4
"""Share of the timed steps in which a rank must be the last, where the window shows it to be slow as well."""
NEARLY_ALWAYS: Final = 0.8
"""The same where the timed steps alone must prove it,"""
IN_EACH_HALF: Final = 0.65
"""and in each half of them: what disturbs a rank of a shared machine lasts for many steps, and then ends."""
_ENOUGH: Final = 3
"""Steps of the window from which on they can agree."""
_SPREADS: Final = 4.0
"""Standard errors of the mean excess over steps; steps that follow each other are not independent, so that three,
which would do for chance alone, alarm in jobs whose ranks share cores."""


@dataclass(frozen=True, slots=True)
class Habit:
    """How often a rank was the last to its collectives in the timed steps of the job, and how late."""

    steps: int
    last: int
    last_in_halves: tuple[float, float]
    """Share of the first and of the second half of the steps in which it was the last."""
    lateness: float
    """Median lateness after the first rank, as a part of the step."""
    p_value: float

    @property
    def is_late(self) -> bool:
        """Whether it is the last too often for chance, and late enough to matter."""
        return self.p_value <= PROVEN and self.lateness >= SMALLEST and self.last >= OFTEN * self.steps

    @property
    def is_certain(self) -> bool:
        """Whether it needs no window to be called late."""
        always = self.last >= NEARLY_ALWAYS * self.steps and min(self.last_in_halves) >= IN_EACH_HALF
        return self.is_late and always


def _denies(comparison: Comparison, one: Straggler, habit: Habit) -> bool:
    """Return whether a window with more steps than were timed outside of it does not show the rank to be late."""
    by_step = comparison.by_step[comparison.place(one.rank)]
    return int((~np.isnan(by_step)).sum()) >= habit.steps and one.p_value > _CHANCE


def confidence(comparison: Comparison, one: Straggler, habit: Habit | None) -> float:
    """Return how often a rank with this evidence is late; 0 where it may be chance. A rank that does more work need not
    come last to every collective: where small ones follow each other, any rank may."""
    if habit is not None and habit.is_certain:
        return 0.3 if _denies(comparison, one, habit) else 0.95
    if habit is not None and not habit.is_late and one.cause != "more_work":
        return 0.0
    by_step = comparison.by_step[comparison.place(one.rank)]
    known = by_step[~np.isnan(by_step)]
    is_proven = one.p_value <= PROVEN
    if known.size < _ENOUGH or not one.in_steps:
        return 0.85 if is_proven else 0.6 if one.p_value <= LIKELY else 0.0
    is_habit = habit is not None and habit.is_late
    is_steady = float(known.mean()) >= _SPREADS * float(known.std(ddof=1)) / sqrt(known.size)
    if not is_steady or one.kind != "persistent":
        return (0.85 if is_habit else 0.5) if is_proven and one.kind == "persistent" else 0.0
    return 0.95 if is_proven or is_habit else 0.85
