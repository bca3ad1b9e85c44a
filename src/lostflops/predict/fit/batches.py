"""Measurements at each batch size, and the fits to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lostflops.account.memory.blocks import RankMemory
from lostflops.core.units import pluralise
from lostflops.predict.fit.peaks import Peaks, peaks
from lostflops.predict.fit.step_times import BatchTimes, FittedStepTime, times

_SAME: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredBatch:
    """A run at one batch size."""

    batch: int
    memories: tuple[RankMemory, ...]
    time: FittedStepTime | None
    steps: int = 0
    samples: float | None = None
    """Samples per step; None if they were not counted."""
    microbatches: int | None = None
    """Microbatches per step; None if they were not counted."""
    process: int = 0
    """Most bytes that a process held; 0 if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitResult:
    """Lines fitted to runs at several batch sizes."""

    runs: tuple[MeasuredBatch, ...]
    memories: tuple[RankMemory, ...]
    peaks: Peaks | None
    times: BatchTimes | None
    each: float
    """Samples of a step per unit of the batch size."""
    unknown: tuple[str, ...]
    """Reasons why `peaks` or `times` is None."""


def fit_batches(runs: Sequence[MeasuredBatch]) -> FitResult:
    """Fit memory and step time to runs at two or more batch sizes."""
    ordered = tuple(sorted(runs, key=lambda run: run.batch))
    unknown: list[str] = []
    memories = _same_place(ordered)
    lines = None
    if memories:
        lines = peaks([run.batch for run in ordered], memories)
    else:
        lacking = ", ".join(str(run.batch) for run in ordered if not run.memories)
        unknown.append(
            f"Memory cannot be predicted: no memory events were recorded at batch {lacking}. Run 20 steps or more."
            if lacking
            else "Memory cannot be predicted: no rank and device was recorded at every size."
        )
    paced, each, reason = _fit_step_times(ordered)
    if reason:
        unknown.append(reason)
    return FitResult(runs=ordered, memories=memories, peaks=lines, times=paced, each=each, unknown=tuple(unknown))


def _same_place(runs: Sequence[MeasuredBatch]) -> tuple[RankMemory, ...]:
    """Return the memories of the rank and device with the highest peak at the largest size, accelerators first; empty
    if no rank and device is in every run."""
    by_place = [{(memory.rank, memory.device): memory for memory in run.memories} for run in runs]
    common = set.intersection(*(set(found) for found in by_place)) if by_place else set()
    if not common:
        return ()
    place = max(common, key=lambda one: (one[1] != "cpu", by_place[-1][one].peak_bytes, -one[0]))
    return tuple(found[place] for found in by_place)


def _fit_step_times(runs: Sequence[MeasuredBatch]) -> tuple[BatchTimes | None, float, str]:
    """Return the fitted step times, the samples per unit of the batch size, and the reason if there is no fit."""
    ratios = [run.samples / run.batch for run in runs if run.samples]
    is_counted = len(ratios) == len(runs)
    if is_counted and max(ratios) > (1 + _SAME) * min(ratios):
        took = ", ".join(f"{run.samples:g}" for run in runs)
        passes = {run.microbatches for run in runs}
        why = "" if len(passes) < 2 else f" in {', '.join(str(run.microbatches) for run in runs)} microbatches"
        return (
            None,
            1.0,
            (f"Throughput cannot be predicted: steps took {took} samples{why}, not in proportion to the batch size."),
        )
    known = [run.time for run in runs if run.time is not None]
    found = times(known) if len(known) == len(runs) else None
    if found is None:
        few = min(run.steps for run in runs)
        return (
            None,
            1.0,
            f"Throughput cannot be predicted: a run has only {pluralise(few, 'settled step')}; run 30 or more.",
        )
    return found, (sum(ratios) / len(ratios) if is_counted else 1.0), ""
