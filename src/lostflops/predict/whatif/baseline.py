"""A run replayed without changes: the start of every what-if, and the check whether the replay is good enough."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.ledger.few_steps import (
    Numbers,
    describe_chosen_steps,
    few_steps,
    step_times,
    warm_up,
    without_warm_up,
)
from lostflops.account.pace.normal import UNLIKE, NormalSteps, normal_steps
from lostflops.core.errors import ReplayDiffers, UnknownCost
from lostflops.core.units import format_share
from lostflops.predict.graph.build import build
from lostflops.predict.graph.replay import Schedule, replay
from lostflops.predict.graph.tasks import LaneKind
from lostflops.predict.whatif.interval import (
    BETWEEN_RUNS,
    BETWEEN_RUNS_ON_HOSTS,
    between_runs,
    noise,
    noise_of,
)
from lostflops.predict.whatif.run_facts import LearnTimes, facts_of

if TYPE_CHECKING:
    from lostflops.account.ledger.by_rank import Progress
    from lostflops.predict.graph.tasks import TaskGraph
    from lostflops.predict.whatif.change import Facts
    from lostflops.store.run import Run

    Build = Callable[[Run, Progress | None], TaskGraph]

UNCERTAIN: Final = 0.05
"""With a larger replay error than this, a what-if says so first."""
REFUSED: Final = 0.2
"""With a larger replay error than this, a what-if is refused: its predictions are not good enough to act on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A run replayed without changes; times are in ns."""

    schedule: Schedule
    facts: Facts
    measured: float
    """Normal step of the run from the timings of all its steps, else the mean of its profiled steps."""
    profiled: float
    """Mean profiled step over all ranks."""
    replayed: float
    """Mean step over all ranks in the replay."""
    noise: float
    """Part of `measured` by which the level of as many other steps may differ from it."""
    recorded: int
    """Number of profiled steps of the run; the graph may hold only a few of them."""
    normal: NormalSteps | None = None
    """Normal steps of the run; None if too few were timed."""

    @property
    def graph(self) -> TaskGraph:
        return self.schedule.graph

    @property
    def error(self) -> float:
        """Error of the replay, relative to the profiled steps."""
        return self.replayed / self.profiled - 1

    @property
    def level(self) -> float:
        """Factor from a replayed time to a measured one."""
        return self.measured / self.replayed

    @property
    def stretch(self) -> float:
        """Profiled step time divided by normal step time; 1 if no normal step was timed."""
        return self.profiled / self.measured

    @property
    def unlike(self) -> float:
        """Part of a saving that is uncertain because profiled steps were slower or faster than normal ones. The part of
        the step that is saved may not have been stretched at all (then it saves `stretch` times as much), or twice as
        much (then it saves that much less): half the difference between the two."""
        return abs(self.stretch - 1 / self.stretch) / 2

    @property
    def between(self) -> float:
        """Part of a step by which runs of the same job differ, whatever is changed."""
        if (self.graph.lanes.kind == LaneKind.STREAM).any():
            return BETWEEN_RUNS
        return BETWEEN_RUNS_ON_HOSTS if self.normal is None else between_runs(self.normal.drift)

    @property
    def is_uncertain(self) -> bool:
        return abs(self.error) > UNCERTAIN


_kept: ContextVar[dict[int, tuple[Run, Baseline]] | None] = ContextVar("baselines", default=None)
"""Baselines by the id of their run. The run is kept too, because the id of a deleted run may be reused."""
_build: Final = build


@contextmanager
def replayed_once() -> Iterator[None]:
    """Replay each run only once inside this context, for all questions that a page asks about it."""
    token = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(token)


def baseline(
    run: Run, times: LearnTimes | None = None, *, progress: Progress | None = None, build: Build = build
) -> Baseline:
    """Replay the run without changes. Raise `UnknownCost` if the replay does not come near the measured steps."""
    kept = _kept.get() if times is None and build is _build else None
    if kept is None:
        return _baseline(run, times, progress, build)
    if id(run) not in kept:
        kept[id(run)] = run, _baseline(run, times, progress, build)
    return kept[id(run)][1]


def _steps_to_replay(whole: Run) -> tuple[Run, str]:
    """Return the run with the steps that are replayed, and a note on the others; the note is empty if all steps are
    replayed."""
    run = few_steps(whole)
    if run is not whole or whole.steps:
        return run, describe_chosen_steps(run) if run is not whole else ""
    run = without_warm_up(whole)
    first = "" if run is whole else f"Step {warm_up(*step_times(whole))} is warm-up and is left out."
    return run, first


def _normal_times(run: Run) -> tuple[Numbers, Numbers]:
    """Return number and time of each step of the whole run, without a first step that is warm-up."""
    number, took = step_times(run.whole)
    keep = number != warm_up(number, took)
    return number[keep], took[keep]


def _baseline(whole: Run, times: LearnTimes | None, progress: Progress | None, build: Build) -> Baseline:
    run, note = _steps_to_replay(whole)
    graph = build(run, progress)
    if note:
        graph = replace(graph, notes=(note, *graph.notes))
    schedule = replay(graph)
    steps = graph.steps
    profiled, replayed = float(steps.measured.mean()) if len(steps) else 0.0, schedule.mean_step
    if not (profiled > 0 and replayed > 0):
        raise UnknownCost("inconclusive: no step of this run has a duration")
    known = _normal_times(run) if run.steps else (steps.number, steps.measured)
    recorded = np.unique(known[0]).size
    normal = normal_steps(run)
    measured, chance = (
        (profiled, noise(*known)) if normal is None else (normal.location.value, noise_of(normal.location))
    )
    if says := describe_stretch(profiled / measured):
        schedule = replace(schedule, graph=replace(graph, notes=(*graph.notes, says)))
    found = Baseline(
        schedule=schedule,
        facts=facts_of(run, graph, times),
        measured=measured,
        profiled=profiled,
        replayed=replayed,
        noise=chance,
        recorded=recorded,
        normal=normal,
    )
    if abs(found.error) > REFUSED:
        raise ReplayDiffers(
            f"inconclusive: replayed without changes, a step takes {format_share(abs(found.error))} "
            f"{'more' if found.error > 0 else 'less'} than measured, so the traces miss something that matters. "
            "lostflops info lists what is missing; record all ranks and whole steps"
        )
    return found


def describe_stretch(times: float) -> str:
    """Return a note if profiled steps take `times` times as long as normal ones; empty if the two are about the same.

    >>> describe_stretch(1.56), describe_stretch(1.02), describe_stretch(0.5)
    ('Profiled steps took 1.56x as long as normal ones.', '', 'Profiled steps took 0.50x as long as normal ones.')
    """
    if 1 / UNLIKE < times < UNLIKE:
        return ""
    return f"Profiled steps took {times:.2f}x as long as normal ones."
