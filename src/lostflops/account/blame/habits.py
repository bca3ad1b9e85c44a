"""Habits of late ranks, for the one verdict that the report, the answer about ranks and the diagnosis share.

A deep window holds a few steps, in which a rank of a shared machine may well be slow by chance. So if the timings of
all steps (since the job became slower, if it did) show in which order ranks enqueue their collectives, that habit
decides, and the window only explains on which line the rank loses its time. A rank that waits for data in the window is
also late if it does so in the timed steps next to it. Without timings, the steps of the window must agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SMALLEST: Final = 0.03
"""Share of a step that the median lateness of a rank must reach."""
PROVEN: Final = 0.01
"""A rank is not last by chance if the probability of being last this often is at most this."""
FEWEST: Final = 8
"""Fewest timed steps that show a habit."""
OFTEN: Final = 0.4
"""Share of the timed steps in which a rank must be last, if the window shows it to be slow as well."""
NEARLY_ALWAYS: Final = 0.8
"""Share of the timed steps in which a rank must be last, if they alone must prove it."""
IN_EACH_HALF: Final = 0.65
"""Share of each half of the timed steps, too: what disturbs a rank of a shared machine lasts many steps, then ends."""


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
    data_excess: float = 0.0
    """How much longer than its peers it waits for data in the timed steps next to the newest window, as a part of the
    step; 0 if that may be chance."""
    since: int | None = None
    """First of the steps that this is about, if the job has been slower since then; None for all of them."""

    @property
    def is_late(self) -> bool:
        """Whether it is the last too often for chance, and late enough to matter."""
        return self.p_value <= PROVEN and self.lateness >= SMALLEST and self.last >= OFTEN * self.steps

    @property
    def is_certain(self) -> bool:
        """Whether it needs no window to be called late."""
        always = self.last >= NEARLY_ALWAYS * self.steps and min(self.last_in_halves) >= IN_EACH_HALF
        return self.is_late and always
