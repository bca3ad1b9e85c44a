"""Runs of both sides, each read once: step times, facts about their jobs, and accounts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import TYPE_CHECKING, Final

from lostflops.account.pace.blocks import Location, mean, typical
from lostflops.core.errors import UsageError
from lostflops.core.stats import MachineKind
from lostflops.explain.compare.account import Account, account, average_accounts
from lostflops.explain.compare.change import RelativeChange, change
from lostflops.explain.compare.comparable import JobComparison, JobFacts, compare, facts
from lostflops.explain.compare.series import StepTimes, read_profiled_steps, read_timed_steps
from lostflops.predict.whatif.predictions import data_of
from lostflops.store.places import as_typed
from lostflops.store.run import Run

if TYPE_CHECKING:
    from lostflops.account.ledger.by_rank import Progress

OpenRun = Callable[[Path], Run]
"""Opens a run, which is closed once it was read."""
_FEWEST: Final = 2
"""If a run has fewer settled steps than this, its trace is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSide:
    """One run of a side."""

    path: Path
    data: str
    steps: StepTimes
    facts: JobFacts
    began: int
    """Start of its first step, in ns of Unix time."""
    account: Account | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPair:
    """The runs of both sides, and how they differ."""

    before: tuple[MeasuredSide, ...]
    after: tuple[MeasuredSide, ...]
    is_timed: bool
    comparison: JobComparison
    unit: str
    """Unit that times are for: a `step`, or a `sample` or `token` if batches differ."""
    typical: RelativeChange
    average: RelativeChange
    typical_ns: tuple[float, float]
    """Typical times of A and of B: the geometric mean of their runs."""
    average_ns: tuple[float, float]

    @property
    def steps_per_run(self) -> int:
        """The smallest number of steps of any run."""
        return min(run.steps.times.size for run in (*self.before, *self.after))

    @property
    def runs_per_side(self) -> int:
        return min(len(self.before), len(self.after))

    def accounts(self) -> tuple[Account, Account] | None:
        """Return the accounts of both sides, from the runs that have one; None if a side has none."""
        sides = [[run.account for run in side if run.account is not None] for side in (self.before, self.after)]
        return (average_accounts(sides[0]), average_accounts(sides[1])) if all(sides) else None


def read_pair(
    before: Sequence[Path],
    after: Sequence[Path],
    *,
    anyway: bool = False,
    accounted: bool = False,
    progress: Progress | None = None,
    open_run: OpenRun = Run.open,
) -> RunPair:
    """Read and compare the runs of two sides; raise UsageError if they cannot be compared."""
    paths = [*before, *after]
    is_timed = True
    runs = _measure_runs(paths, read_timed_steps, accounted, progress, open_run)
    if any(run.steps.times.size < _FEWEST for run in runs):
        traced = _measure_runs(paths, read_profiled_steps, accounted, progress, open_run)
        if all(run.steps.times.size for run in traced) or not any(run.steps.times.size for run in runs):
            is_timed, runs = False, traced
    _check_comparable(runs)
    sides = tuple(runs[: len(before)]), tuple(runs[len(before) :])
    comparison = compare(*([run.facts for run in side] for side in sides))
    if comparison.refused and not anyway:
        told = "; ".join(map(str, comparison.refused))
        raise UsageError(f"these are different jobs: {told}. To compare them anyway, use --anyway")
    return compare_sides(sides[0], sides[1], is_timed=is_timed, comparison=comparison)


def compare_sides(
    before: tuple[MeasuredSide, ...], after: tuple[MeasuredSide, ...], *, is_timed: bool, comparison: JobComparison
) -> RunPair:
    unit = _unit(before, after, comparison)
    machine = MachineKind.HOST if _on_hosts(before + after) else MachineKind.ACCELERATOR
    middle = [[typical(run.steps.per(unit)) for run in side] for side in (before, after)]
    average = [[mean(run.steps.per(unit)) for run in side] for side in (before, after)]
    return RunPair(
        before=before,
        after=after,
        is_timed=is_timed,
        comparison=comparison,
        unit=unit,
        typical=change(middle[0], middle[1], machine),
        average=change(average[0], average[1], machine),
        typical_ns=_middles(middle),
        average_ns=_middles(average),
    )


def _middles(sides: Sequence[Sequence[Location]]) -> tuple[float, float]:
    before, after = (geometric_mean(run.value for run in side) for side in sides)
    return before, after


def _measure_runs(
    paths: Sequence[Path],
    series: Callable[[Run], StepTimes],
    accounted: bool,
    progress: Progress | None,
    open_run: OpenRun,
) -> list[MeasuredSide]:
    found = []
    for done, path in enumerate(paths):
        if progress is not None:
            progress(done, len(paths))
        with open_run(path) as run:
            steps = series(run)
            told = facts(run, steps.samples, steps.tokens)
            made = account(run) if accounted else None
            found.append(
                MeasuredSide(
                    path=path, data=data_of(run.manifest), steps=steps, facts=told, began=_began(run), account=made
                )
            )
    return found


def _began(run: Run) -> int:
    query = "select coalesce((select min(start) from timings), (select min(start) from steps), 0)"
    ((began,),) = run.rows(query)
    return int(began)


def _check_comparable(runs: Sequence[MeasuredSide]) -> None:
    for run in runs:
        if not run.steps.times.size:
            raise UsageError(
                f"{as_typed(run.path)} has no step that can be compared: record more steps with lostflops run, or call "
                "profiler.step() in the loop"
            )
    often = Counter(run.data for run in runs)
    if twice := [as_typed(run.path) for run in runs if often[run.data] > 1]:
        raise UsageError(f"{' and '.join(twice[:2])} are the same recording: give each recording only once")


def _on_hosts(runs: Sequence[MeasuredSide]) -> bool:
    return any(run.facts.told.get("device") == "no accelerator" for run in runs)


def _unit(before: Sequence[MeasuredSide], after: Sequence[MeasuredSide], comparison: JobComparison) -> str:
    """Return the unit of times: tokens, otherwise samples, if either differs and all runs recorded it; otherwise
    steps."""
    differing = {one.fact for one in comparison.differing}
    runs = (*before, *after)
    if not differing & {"tokens per step", "samples per step"}:
        return "step"
    if all(run.steps.tokens for run in runs):
        return "token"
    return "sample" if all(run.steps.samples for run in runs) else "step"
