"""Look at a capture repeatedly, until the job has ended or nothing new arrives."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from lostflops.live.board import Board, StepLine
from lostflops.live.follow import Follower
from lostflops.live.notices import Notice

AFTER_END: Final = 30.0
"""A launcher may start the job again in these seconds after every rank ended."""


@dataclass(frozen=True, slots=True)
class WatchInterval:
    """How often to look at a job, and how long."""

    interval: float = 1.0
    """Seconds between two looks."""
    patience: float = 600.0
    """Seconds without news until watching ends."""
    is_once: bool = False
    """Whether to look only once."""
    after_end: float = AFTER_END
    """Seconds without news until watching ends, once every rank ended."""


def watch(
    follower: Follower,
    board: Board,
    pace: WatchInterval,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[list[StepLine | Notice]]:
    """Yield the lines and notices of each look, even if there are none."""
    heard = clock()
    while True:
        now = clock()
        if board.take(follower.poll(), now):
            heard = now
        yield list(board.settle(now))
        patience = min(pace.patience, pace.after_end) if board.is_ended else pace.patience
        if pace.is_once or clock() - heard > patience:
            return
        sleep(pace.interval)
