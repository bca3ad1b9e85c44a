"""Wait for another process that writes to the same run."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

_PATIENCE: Final = 60
_LOOK: Final = 0.2


def in_turn(action: Callable[[], T], *, behind_anybody: bool = False) -> T:
    """Do what needs the run's lock, after waiting for an ingest that the user did not start.

    The job itself starts one while it trains. At the job's end there may be more (`behind_anybody`), from its other
    hosts. If the user started two ingests, the second fails at once.
    """
    from lostflops.core.errors import RunBusy

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
                tell(f"waiting up to {_PATIENCE} s: {error}")
        time.sleep(_LOOK)
