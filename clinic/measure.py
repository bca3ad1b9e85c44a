"""What a step of a run takes."""

from __future__ import annotations

from lostflops.account.pace.timings import PACED, choose_pace, paces, within
from lostflops.predict.whatif.score import step_times
from lostflops.store.run import Run

_SETTLED = """
    with {paced}
    select avg(ns), sum(ns) / nullif(sum(samples), 0) from paced where settled and is_whole"""


def step_ns(run: Run, *, per_sample: bool = False) -> float:
    """The mean over settled steps that were not profiled, where steps were timed; else over those of the trace.

    Per sample, it is the time of a step over the samples of all ranks.
    """
    pace = choose_pace(paces(run))
    if pace is not None and pace.settled:
        query = _SETTLED.format(paced=PACED.format(within=within((), pace.attempt)))
        ((step, sample),) = run.sql(query).fetchall()
        taken = sample if per_sample else step
        if taken is not None:
            return float(taken)
    if per_sample:
        raise ValueError(f"{run.path} does not tell how many samples a step has")
    times = step_times(run)
    return sum(times) / len(times)
