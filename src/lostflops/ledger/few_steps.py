"""Which steps stand for a run that is too large to be replayed whole?

Steps of a job resemble one another, and a replay of a few says what a change does to each. They follow one another, as
in a shorter recording; of all such rows of steps they are the one whose mean comes nearest that of all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from lostflops.ledger.record import steps_of
from lostflops.ledger.windows import step_window
from lostflops.units import counted, format_ns

if TYPE_CHECKING:
    from lostflops.store.run import Run

Numbers = npt.NDArray[np.int64]

_EVENTS: Final = "select coalesce(sum(events), 0)::bigint from ranks"

MOST_EVENTS: Final = 750_000
"""As many are replayed within a second."""
AFFORDED: Final = 3_000_000
"""Of more nobody who waits for a page waits for a replay."""
_ALIKE: Final = 0.05
"""By what part their mean may differ from that of all."""


def few_steps(run: Run, most: int = MOST_EVENTS) -> Run:
    """The run itself where all its steps hold at most so many events, or where no few are like all; never less than one
    step."""
    ((events,),) = run.sql(_EVENTS).fetchall()
    if run.steps or events <= most:
        return run
    number, took = step_times(run)
    steps, place = np.unique(number, return_inverse=True)
    fitting = int(most * steps.size // events) or 1
    if fitting >= steps.size:
        return run
    mean = np.bincount(place, took) / np.bincount(place)
    few = run.of_steps(steps[_nearest(mean, fitting)].tolist())
    # Seen alone, their last step ends with its own last event, which may be long after the next has begun.
    own = step_times(few)[1].mean()
    if abs(own / took.mean() - 1) <= _ALIKE:
        return few
    few.close()
    return run


def is_large(run: Run) -> bool:
    """Whether even the steps that stand for it take minutes to replay."""
    few = few_steps(run)
    ((events,),) = few.sql("select count(*) from events" if few.steps else _EVENTS).fetchall()
    return bool(events > AFFORDED)


def _nearest(mean: npt.NDArray[np.float64], size: int) -> slice:
    """
    >>> _nearest(np.array([9.0, 1.0, 2.0, 3.0, 2.0, 1.0]), 2)
    slice(2, 4, None)
    """
    sums = np.convolve(mean, np.ones(size), mode="valid")
    first = int(np.abs(sums / size - mean.mean()).argmin())
    return slice(first, first + size)


def step_times(run: Run) -> tuple[Numbers, Numbers]:
    """Number and time of each step of each rank."""
    ranks = [rank for (rank,) in run.sql("select distinct rank from steps order by rank").fetchall()]
    windows = [step_window(steps, steps.on_device) for steps in steps_of(run, ranks)] if ranks else []
    none = np.empty(0, np.int64)
    number = np.concatenate([none, *(np.array(one.number, np.int64) for one in windows)])
    return number, np.concatenate([none, *(one.stop - one.start for one in windows)])


def told(run: Run) -> str:
    """Which steps a run shows and how they compare with all; empty where it shows all."""
    if not run.steps:
        return ""
    number, took = step_times(run.whole)
    own, mean = (format_ns(round(float(times.mean()))) for times in (step_times(run)[1], took))
    first, last = run.steps[0], run.steps[-1]
    which = f"step {first} stands" if first == last else f"steps {first} to {last} stand"
    return (
        f"The run is large, so that {which} for all {counted(len(np.unique(number)), 'step')}: their mean is {own}, "
        f"that of all {mean}."
    )
