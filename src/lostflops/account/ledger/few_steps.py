"""Which steps represent a run that is too large to be replayed whole?

Steps of a job are similar, and a replay of a few shows what a change does to each. The chosen steps follow one another,
as in a shorter recording. Of all such rows of steps, the one whose mean is nearest to that of all steps is chosen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from lostflops.account.ledger.record import steps_of
from lostflops.account.ledger.windows import step_window
from lostflops.core.units import format_ns, pluralise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lostflops.store.run import Run

Numbers = npt.NDArray[np.int64]

_EVENTS: Final = "select coalesce(sum(events), 0)::bigint from ranks"

MOST_EVENTS: Final = 750_000
"""This many are replayed within a second."""
AFFORDED: Final = 3_000_000
"""A replay of more events takes too long for a page."""
_AFFORDED_RANKS: Final = 4_096
"""Ranks that are replayed for a page: each takes some ms, however little it recorded."""
WARM_UP: Final = 2.0
"""A first step of more than this many times the others' median is warm-up: compilation, allocation, connections."""
_FEWEST_OTHERS: Final = 3
_ALIKE: Final = 0.05
"""Part by which the mean of the chosen steps may differ from that of all."""


def few_steps(run: Run, most: int = MOST_EVENTS, *, is_copied: bool = True) -> Run:
    """Return the run with a few steps that are like all, of at most `most` events; never less than one step.

    Copy the rows of these steps to memory if `is_copied`: worth it if they are read more than once.

    Return the run itself if all its steps hold at most `most` events, or if no few steps that every rank recorded are
    like all.
    """
    ((events,),) = run.rows(_EVENTS)
    if run.steps or events <= most:
        return run
    number, took = step_times(run)
    steps, place = np.unique(number, return_inverse=True)
    fitting = int(most * steps.size // events) or 1
    if fitting >= steps.size:
        return run
    count = np.bincount(place)
    ((ranks,),) = run.rows("select count(distinct rank) from steps")
    chosen = _nearest(np.bincount(place, took) / count, count == ranks, fitting)
    if chosen is None:
        return run
    few = run.of_steps(steps[chosen].tolist(), is_copied=is_copied)
    # Seen alone, their last step ends with its own last event, which may be long after the next has begun.
    own = step_times(few)[1].mean()
    if abs(own - took.mean()) <= _ALIKE * took.mean():
        return few
    few.close()
    return run


def warm_up(number: Numbers, took: Numbers) -> int | None:
    """Return the number of the first step if it is warm-up, which happens once and not in every step; else None.

    >>> steps = np.array([1, 2, 3, 4])
    >>> warm_up(steps, np.array([90, 30, 31, 32])), warm_up(steps, np.array([9, 8, 7, 8]))
    (1, None)
    """
    steps, place, count = np.unique(number, return_inverse=True, return_counts=True)
    means = np.bincount(place, took) / count
    if steps.size <= _FEWEST_OTHERS or means[0] <= WARM_UP * np.median(means[1:]):
        return None
    return int(steps[0])


def without_warm_up(run: Run) -> Run:
    """Return the run without a first step that is warm-up; the run itself if there is none."""
    number, took = step_times(run)
    first = warm_up(number, took)
    return run if first is None else run.of_steps([step for step in np.unique(number).tolist() if step != first])


def is_large(run: Run) -> bool:
    """Return whether even the few steps that represent the run take minutes to replay."""
    return len(run.ranks) > _AFFORDED_RANKS or events_replayed(run) > AFFORDED


def events_replayed(run: Run) -> int:
    """Return the number of events in the few steps that represent the run, or in all its steps."""
    return run.keep("events replayed", lambda: _count_replayed(run))


def _count_replayed(run: Run) -> int:
    few = few_steps(run, is_copied=False)
    ((events,),) = few.rows("select count(*) from events" if few.steps else _EVENTS)
    if few is not run:
        few.close()
    return int(events)


def _nearest(mean: npt.NDArray[np.float64], by_all: npt.NDArray[np.bool_], size: int) -> slice | None:
    """Return `size` steps in a row that all ranks recorded, or fewer if there are no more, or None.

    Of all such rows, it is the one whose mean is nearest to that of all steps.

    >>> some = np.array([9.0, 1.0, 2.0, 3.0, 2.0, 1.0])
    >>> _nearest(some, some > 0, 2), _nearest(some, some != 3, 2)
    (slice(2, 4, None), slice(1, 3, None))
    >>> _nearest(some, some > 2, 4), _nearest(some, some > 9, 1)
    (slice(3, 4, None), None)
    """
    gaps = np.flatnonzero(np.concatenate(([True], ~by_all, [True])))
    size = min(size, int(np.diff(gaps).max()) - 1)
    if not size:
        return None
    sums, held = (np.convolve(values, np.ones(size), mode="valid") for values in (mean, by_all))
    off = np.where(held == size, np.abs(sums / size - mean.mean()), np.inf)
    first = int(off.argmin())
    return slice(first, first + size)


def step_times(run: Run) -> tuple[Numbers, Numbers]:
    """Return number and time of each step of each rank, in ns."""
    ranks = [rank for (rank,) in run.rows("select distinct rank from steps order by rank")]
    windows = [step_window(steps, steps.on_device) for steps in steps_of(run, ranks)] if ranks else []
    none = np.empty(0, np.int64)
    number = np.concatenate([none, *(np.array(one.number, np.int64) for one in windows)])
    return number, np.concatenate([none, *(one.stop - one.start for one in windows)])


def describe_chosen_steps(run: Run) -> str:
    """Say which steps a run shows and how they compare with all; empty if it shows all."""
    if not run.steps:
        return ""
    number, took = step_times(run.whole)
    own, mean = (format_ns(round(float(times.mean()))) for times in (step_times(run)[1], took))
    return (
        f"The run is large, so only {_name_steps(run.steps)} analysed, "
        f"of {pluralise(len(np.unique(number)), 'step')}: mean "
        f"{own}, mean of all steps {mean}."
    )


def _name_steps(steps: Sequence[int]) -> str:
    """Name steps, with the verb that follows.

    >>> _name_steps([3]), _name_steps([3, 4]), _name_steps([3, 10])
    ('step 3 was', 'steps 3 to 4 were', '2 recorded steps from 3 to 10 were')
    """
    first, last = steps[0], steps[-1]
    if first == last:
        return f"step {first} was"
    which = f"steps {first}" if last - first < len(steps) else f"{len(steps):,} recorded steps from {first}"
    return f"{which} to {last} were"
