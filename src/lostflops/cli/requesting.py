"""Ask a running job for a deep window: which ranks run, which step comes soon enough, one number for each request."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from lostflops.cli.output import command
from lostflops.collect.capture import WindowRequest, request_file
from lostflops.core.errors import UsageError
from lostflops.live.standing import Standing, first_step, standings

_MOST_TRIES: Final = 100
_SILENT_NS: Final = 300_000_000_000
"""A rank whose last step ended so long before that of another does not train: it was killed in an earlier start of the
job, or its collector records nothing. Where it would be by now is not known."""


def running_ranks(capture: Path) -> dict[int, Standing]:
    """Return where the ranks are that train; raise UsageError if none do."""
    if not capture.is_dir():
        raise UsageError(
            f"{capture.parent} has no capture; start the job with {command('run', '--out', capture.parent)}"
        )
    found = standings(capture)
    alive = {rank: state for rank, state in found.items() if not state.has_ended}
    if found and not alive:
        raise UsageError(f"the job in {capture.parent} has ended; see {command('report', capture.parent)}")
    if not any(state.step >= 0 for state in alive.values()):
        raise UsageError(f"no rank has finished a step in {capture.parent}; try again in a moment")
    newest = max(state.stop for state in alive.values())
    return {rank: state for rank, state in alive.items() if state.step >= 0 and newest - state.stop < _SILENT_NS}


def request_window(capture: Path, steps: int, ranks: str) -> WindowRequest:
    """Request a window of the next steps that all ranks can learn of in time."""
    from lostflops.collect.window_plan import next_number, publish

    for _ in range(_MOST_TRIES):
        found = running_ranks(capture)
        number, first = next_number(capture), first_step(list(found.values()), time.time_ns())
        request = WindowRequest(number, first, steps, ranks)
        try:
            publish(request_file(capture, number), request, is_new=True)
        except FileExistsError:
            continue
        return request
    raise UsageError(f"others request windows of {capture.parent} all the time; try again in a moment")
