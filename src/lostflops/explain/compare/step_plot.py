"""The compared steps of both sides as a plot: how far apart they are, and how much runs and steps vary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from lostflops.core.results import Field, Plot, Series
from lostflops.explain.compare.sides import MeasuredSide, RunPair

MOST_POINTS: Final = 2000
"""Most steps of a side that are drawn; of more, every second, third and so on of each run."""


def plot_steps(pair: RunPair) -> Plot:
    """Plot the time of each compared step, run by run, and the typical time of each side."""
    longest = max(run.steps.times.size for run in (*pair.before, *pair.after))
    series = []
    for side, runs, typical in (("A", pair.before, pair.typical_ns[0]), ("B", pair.after, pair.typical_ns[1])):
        series += list(_draw_runs(side, runs, pair.unit))
        series.append(Series(f"{side}: typical", "line", ((1, typical), (max(longest, 2), typical))))
    axes = Field("number", "count", "compared step of a run"), Field("ns", "ns", f"time of a {pair.unit}")
    return Plot("compared_steps", "Compared steps", *axes, tuple(series), log_x=False, log_y=False)


def _draw_runs(side: str, runs: tuple[MeasuredSide, ...], unit: str) -> Iterator[Series]:
    every = max(-(-sum(run.steps.times.size for run in runs) // MOST_POINTS), 1)
    for name, run in zip(name_runs([run.path for run in runs]), runs, strict=True):
        times = run.steps.per(unit).tolist()
        points = tuple((number, times[number - 1]) for number in range(1, len(times) + 1, every))
        yield Series(f"{side}: {name}", "marks", points)


def name_runs(paths: Sequence[Path]) -> tuple[str, ...]:
    """Name runs without their folders, which are private on a page; runs of equal names are numbered.

    >>> name_runs([Path("old/run-1"), Path("old/run-2")]), name_runs([Path("a/run"), Path("b/run")])
    (('run-1', 'run-2'), ('run (1)', 'run (2)'))
    """
    names = [path.name for path in paths]
    if len(set(names)) == len(names):
        return tuple(names)
    return tuple(f"{name} ({number})" for number, name in enumerate(names, 1))
