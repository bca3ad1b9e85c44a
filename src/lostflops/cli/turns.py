"""A run that somebody else writes to: who waits for that, and how long."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

_PATIENCE: Final = 60
_LOOK: Final = 0.2


def in_turn(action: Callable[[], T], *, behind_anybody: bool = False) -> T:
    """Do what needs the run's lock, once an ingest is over that its user cannot know of.

    That is one of the job itself, while it trains. At the job's end there may be others (`behind_anybody`), of its
    other hosts. Who started two ingests himself is told at once.
    """
    from lostflops.errors import RunBusy

    deadline: float | None = None
    while True:
        try:
            return action()
        except RunBusy as error:
            now = time.monotonic()
            if not (error.is_early or behind_anybody) or (deadline is not None and now > deadline):
                raise
            if deadline is None:
                from lostflops.cli.output import tell

                deadline = now + _PATIENCE
                tell(f"waiting for up to {_PATIENCE} s: {error}")
        time.sleep(_LOOK)
