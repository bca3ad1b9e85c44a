"""Plot of the time of every step; steps that take much longer are shown separately, by reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from lostflops.account.pace.timings import PACED, PHASES, JobPace, within
from lostflops.core.results import Field, Plot, Series

if TYPE_CHECKING:
    from lostflops.store.run import Run

SLOW: Final = 1.2
"""A step is slow if it takes more than this many times the median."""
MOST_STEPS: Final = 4000
"""Most steps that are drawn; of more, every second, third and so on."""
MOST_OUTLIERS: Final = 1000
"""Most outliers that are drawn: the longest."""
_MARKS: Final = {
    "is_first": "first of the attempt",
    "compiled": "compiled",
    "profiled": "profiled",
    "skipped": "update skipped",
    "is_early": "before phases were timed",
}

_TIMED: Final = f"""
    with {PACED},
    usual as (
        select {", ".join(f"median({phase}) filter (settled) as {phase}" for phase in PHASES)} from paced
    )
    select step, ns, {", ".join(_MARKS)}, {", ".join(f"paced.{phase} - usual.{phase}" for phase in PHASES)}
    from paced, usual where {{chosen}} order by step"""


class Timed(NamedTuple):
    """Time of one step."""

    step: int
    ns: float
    reason: str = ""
    """Why it is an outlier; empty if it is not."""


def strip(steps: Sequence[Timed], middle: float | None, of: str = "step, mean of ranks") -> Plot:
    """Plot the time of each step; `middle` is the time that others are compared with, and `of` says what a time is."""
    usual = [one for one in steps if not one.reason]
    apart = sorted((one for one in steps if one.reason), key=lambda one: -one.ns)[:MOST_OUTLIERS]
    every = max(-(-len(usual) // MOST_STEPS), 1)
    reasons = sorted({one.reason for one in apart})
    series = [Series("steps" if every == 1 else f"steps, one in {every}", "marks", _points(usual[::every]))]
    series += [
        Series(f"outlier: {reason}", "marks", _points([one for one in apart if one.reason == reason]))
        for reason in reasons
    ]
    if middle and len(steps) > 1:
        series.append(Series("median", "line", ((steps[0].step, middle), (steps[-1].step, middle))))
    axes = Field("step"), Field("time_ns", "ns", f"time of a {of}")
    return Plot("step_times", "Time of each step", *axes, tuple(series), log_x=False, log_y=False)


def _points(steps: Sequence[Timed]) -> tuple[tuple[float, float], ...]:
    return tuple((one.step, float(round(one.ns))) for one in sorted(steps))


def timed_strip(run: Run, pace: JobPace, ranks: Sequence[int] = (), steps: Sequence[int] = ()) -> Plot:
    """Plot all steps that were timed in the attempt, or those asked for."""
    chosen = f"step in ({', '.join(map(str, steps))})" if steps else "true"
    rows = run.rows(_TIMED.format(within=within(ranks, pace.attempt), chosen=chosen))
    found = [Timed(row[0], row[1], _reason(row[1], row[2:7], row[7:], pace.p50)) for row in rows]
    return strip(found, pace.p50, "step on the training thread, median of ranks")


def _reason(ns: float, marks: Sequence[bool], beyond: Sequence[float | None], middle: float | None) -> str:
    if middle is None or ns <= SLOW * middle:
        return ""
    known = {phase: more for phase, more in zip(PHASES, beyond, strict=True) if more is not None}
    told = next((name for name, is_set in zip(_MARKS.values(), marks, strict=True) if is_set), None)
    return told or f"slow{largest(known)}"


def largest(beyond: Mapping[str, float]) -> str:
    """Return what exceeds its usual time by more than all else together, in words; empty if nothing does.

    >>> largest({"data": 5.0, "forward": -1.0}), largest({"data": -1.0}), largest({"data": 2.0, "forward": 2.0})
    (', most of it data', '', '')
    """
    most = max(beyond, key=lambda name: beyond[name], default="")
    return (
        f", most of it {most}" if most and 2 * beyond[most] > sum(more for more in beyond.values() if more > 0) else ""
    )
