"""Which rank waits longer for data than its peers, now? By the timed steps next to the newest window.

A few loader workers starve a rank only every few steps, so the steps of a window may miss it, and over the whole job it
is hardly ever last if the trouble began late. Older windows may be from before that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lostflops.account.pace.timings import PACED, JobPace, within

if TYPE_CHECKING:
    from lostflops.store.run import Run

_NEAREST: Final = 64
"""Timed steps that are compared."""
_FEWEST_NEAREST: Final = 16
_LEAST_WAIT: Final = 0.06
"""Share of a step by which a rank must wait longer for data than its peers."""
_WAIT_ERRORS: Final = 5.0
"""Standard errors by which it must; steps that follow each other are not independent."""
_OF_EACH_HALF: Final = 0.5
"""Share of its mean that the wait must reach in the earlier and in the later half of these steps."""
_WAITS: Final = f"""
    with {PACED},
    near as (
        select step from paced where settled order by abs(step - (select max(step) from steps)), step limit {_NEAREST}
    ),
    waited as (
        select rank, step, data, sum(data) over same as of_all, count(data) over same as seen
        from own join near using (step) window same as (partition by step)
    ),
    alone as (
        select rank, step, data - (of_all - data) / (seen - 1) as ns from waited where data is not null and seen > 1
    )
    select rank, avg(ns), stddev_samp(ns) / sqrt(count(*)),
           avg(ns) filter (step <= (select median(step) from near)),
           avg(ns) filter (step > (select median(step) from near))
    from alone group by rank having count(*) >= {_FEWEST_NEAREST}"""


def find_data_waits(run: Run, pace: JobPace) -> dict[int, float]:
    """Return how much longer each rank waits for data than its peers, in ns per step, if that is steady."""
    least = _LEAST_WAIT * (pace.p50 or 0)
    return {
        rank: mean
        for rank, mean, error, early, later in run.rows(_WAITS.format(within=within((), pace.attempt)))
        if mean >= max(least, _WAIT_ERRORS * error) and min(early or 0, later or 0) >= _OF_EACH_HALF * mean
    }
