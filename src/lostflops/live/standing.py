"""Current step and windows of each rank of a job, from the ends of its growing capture files."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lostflops.collect.capture import Frame
from lostflops.live.follow import Follower

_TAIL: Final = 4 << 20
"""Bytes to read from the end of a rank's file: enough for a ring that was read whole."""
_LEAST_STEPS: Final = 3
_LEAST_NS: Final = 3_000_000_000
_RECENT: Final = 20


@dataclass(slots=True, kw_only=True)
class Standing:
    """Where a rank is, by the last records of its last session."""

    rank: int
    local_rank: int | None = None
    session: str = ""
    step: int = -1
    stop: int = 0
    """When `step` ended, by the clock of the rank's host, in ns."""
    durations: list[int] = field(default_factory=list)
    has_ended: bool = False
    windows: dict[int, tuple[str, str | None]] = field(default_factory=dict)
    """Last state of each window, with its reason."""

    @property
    def step_ns(self) -> int:
        """Time of the fastest of the last steps, in ns: a window must not come too soon."""
        return max(min(self.durations[-_RECENT:], default=1), 1)

    def step_at(self, now: int) -> int:
        """Return the step that the rank is in at `now`, estimated from outside."""
        return self.step + 1 + max(now - self.stop, 0) // self.step_ns

    def take(self, frame: Frame) -> None:
        if frame.session != self.session:
            self.session, self.has_ended, self.step, self.durations, self.windows = frame.session, False, -1, [], {}
        for record in frame.records:
            self._take(record)

    def _take(self, record: dict[str, Any]) -> None:
        match record.get("kind"):
            case "session":
                self.local_rank = record.get("local_rank")
            case "step":
                self.step, self.stop = record["step"], record["stop"]
                self.durations = [*self.durations[-_RECENT:], record["stop"] - record["start"]]
            case "window":
                self.windows[record["window"]] = (record["state"], record.get("reason"))
            case "end":
                self.has_ended = True


def standings(folder: Path) -> dict[int, Standing]:
    """Return where each rank of a capture is, by rank."""
    found: dict[int, Standing] = {}
    for frame in Follower(folder=folder, rank_tail=_TAIL).poll():
        found.setdefault(frame.rank, Standing(rank=frame.rank)).take(frame)
    return found


def first_step(ranks: list[Standing], now: int) -> int:
    """Return a step that no rank reaches within the next steps and seconds, so that all learn of it in time.

    >>> slow = Standing(rank=0, step=10, stop=0, durations=[2_000_000_000])
    >>> fast = Standing(rank=1, step=12, stop=0, durations=[500_000_000])
    >>> first_step([slow, fast], now=0)
    20
    """
    ahead = [rank.step_at(now) + max(_LEAST_STEPS, math.ceil(_LEAST_NS / rank.step_ns)) + 1 for rank in ranks]
    return max(ahead)
