"""Plot of the time of every step; steps that take much longer are shown separately, by reason.

Deep windows are shaded, and the beginnings of later attempts are marked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from lostflops.account.pace.timings import PACED, PHASES, JobPace, paces, within
from lostflops.core.results import Band, Field, Mark, Plot, Series, Table

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
_PROFILED: Final = list(_MARKS).index("profiled")

_TIMED: Final = f"""
    with {PACED},
    usual as (
        select attempt, {", ".join(f"median({phase}) filter (settled) as {phase}" for phase in PHASES)}
        from paced group by attempt
    )
    select attempt, step, ns, {", ".join(_MARKS)}, {", ".join(f"paced.{phase} - usual.{phase}" for phase in PHASES)}
    from paced join usual using (attempt) order by attempt, step"""
_TIME: Final = "step on the training thread, median of ranks"
WINDOW: Final = "deep window"


class Timed(NamedTuple):
    """Time of one step."""

    step: int
    ns: float
    reason: str = ""
    """Why it is an outlier; empty if it is not."""
    is_profiled: bool = False


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
    """Plot all steps that were timed in the attempt, or those asked for; deep windows are shaded."""
    timed = [one for one in timed_steps(run, ranks)[pace.attempt] if not steps or one.step in steps]
    return replace(strip(timed, pace.p50, _TIME), bands=_shade_windows(timed))


def history_strip(run: Run, attempts: Sequence[JobPace], ranks: Sequence[int] = ()) -> Plot:
    """Plot the timed steps of all attempts, one attempt after the other. Each counts its steps from 0, so they are
    counted on; each is compared with its own median."""
    timed = timed_steps(run, ranks)
    steps: list[Timed] = []
    medians, marks = [], []
    for pace in attempts:
        first = steps[-1].step + 1 if steps else timed[pace.attempt][0].step
        shift = first - timed[pace.attempt][0].step
        own = [one._replace(step=one.step + shift) for one in timed[pace.attempt]]
        if steps:
            marks.append(Mark(f"attempt {pace.attempt}", first - 0.5))
        if pace.p50 is not None:
            medians += [(own[0].step, pace.p50), (own[-1].step, pace.p50)]
        steps += own
    plot = strip(steps, None, _TIME)
    median = (Series("median", "line", tuple(medians)),) if medians else ()
    return replace(
        plot,
        name="history",
        title="Time of each step, in all attempts",
        x=Field("number", "count", "step, counted over all attempts"),
        series=(*plot.series, *median),
        bands=_shade_windows(steps),
        marks=tuple(marks),
    )


def list_windows(run: Run, ranks: Sequence[int] = ()) -> Table:
    """List the deep windows: steps that follow each other and were profiled."""
    rows = [
        (attempt, round(band.start + 0.5), round(band.stop - 0.5))
        for attempt, steps in timed_steps(run, ranks).items()
        for band in _shade_windows(steps)
    ]
    fields = Field("attempt"), Field("first_step", label="from step"), Field("last_step", label="to step")
    return Table("deep_windows", "Deep windows", fields, tuple(rows))


def timed_steps(run: Run, ranks: Sequence[int] = ()) -> Mapping[int, Sequence[Timed]]:
    """Return the timed steps of each attempt in order; the run keeps them while it is open."""
    return run.keep(("timed steps", tuple(ranks)), lambda: _read_timed(run, ranks))


def _read_timed(run: Run, ranks: Sequence[int]) -> dict[int, list[Timed]]:
    medians = {pace.attempt: pace.p50 for pace in paces(run, ranks)}
    found: defaultdict[int, list[Timed]] = defaultdict(list)
    for attempt, step, ns, *rest in run.rows(_TIMED.format(within=within(ranks))):
        marks, beyond = rest[: len(_MARKS)], rest[len(_MARKS) :]
        found[attempt].append(Timed(step, ns, _reason(ns, marks, beyond, medians[attempt]), marks[_PROFILED]))
    return dict(found)


def _shade_windows(steps: Sequence[Timed]) -> tuple[Band, ...]:
    """Return a band for each stretch of profiled steps.

    >>> _shade_windows([Timed(number, 1.0, is_profiled=number in (3, 4, 7)) for number in range(9)])
    (Band(name='deep window', start=2.5, stop=4.5), Band(name='deep window', start=6.5, stop=7.5))
    """
    bands: list[Band] = []
    for one in steps:
        if one.is_profiled and bands and bands[-1].stop == one.step - 0.5:
            bands[-1] = replace(bands[-1], stop=one.step + 0.5)
        elif one.is_profiled:
            bands.append(Band(WINDOW, one.step - 0.5, one.step + 0.5))
    return tuple(bands)


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
