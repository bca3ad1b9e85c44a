"""Overhead budget of the collector, and what it turns off when it exceeds the budget."""

from __future__ import annotations

from statistics import median
from typing import Any, Final

ALL, NO_RING, EDGES_ONLY, OFF = range(4)
_STRETCH: Final = 20
_LEAST: Final = 2_000_000_000
"""Overhead is measured over at least `_STRETCH` steps and `_LEAST` ns before anything is decided."""


class Budget:
    """The collector's own time compared with step time; each stretch of steps over budget turns off one more part."""

    def __init__(self, share: float) -> None:
        self._share = share
        self.level = ALL
        self._time = self._background = self._seen = 0
        self._own: list[int] = []

    def skip(self, background: int) -> None:
        """Ignore a step and the CPU time of our threads in it; `background` is their CPU time so far."""
        self._seen = background

    def account(self, step: int, time: int, own: int, background: int) -> dict[str, Any] | None:
        """Add a step that no window disturbed; `background` is the CPU time of our threads so far.

        Returns the record to write; None until there are enough steps to decide.
        """
        self._background += background - self._seen
        self._seen = background
        self._time += time
        self._own.append(own)
        steps = len(self._own)
        if steps < _STRETCH or self._time < _LEAST:
            return None
        # The median: a thread that loses its core inside a hook would have lost it elsewhere.
        share = (median(self._own) * steps + self._background) / self._time
        reason = None
        if share > self._share and self.level < OFF:
            self.level += 1
            reason = f"overhead was {share:.2%} over {steps} steps, more than {self._share:.2%}"
        self._time = self._background = 0
        self._own.clear()
        return {"kind": "overhead", "step": step, "own_share": share, "level": self.level, "reason": reason}
