"""Is B faster than A, by how much, and where?

Steps are not independent, and runs differ by more than steps do: `compare.change` describes how that is judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Final

from lostflops.core.results import Block, Figure, Pairs, Result
from lostflops.core.results import Pair as Item
from lostflops.core.units import format_share
from lostflops.explain.compare import comparable, where
from lostflops.explain.compare.change import CONFIDENCE, MARGIN, Verdict, verdict
from lostflops.explain.compare.sides import RunPair
from lostflops.explain.compare.step_plot import plot_steps
from lostflops.explain.compare.wording import (
    advice,
    describe_change,
    estimate_runs_for_pair,
    format_precise_ns,
    notes,
    profiled_apart,
)
from lostflops.store.places import as_typed

_WORDS: Final = {Verdict.FASTER: "faster", Verdict.SLOWER: "slower"}


def diff(pair: RunPair, margin: float = MARGIN, most_kernels: int = where.MOST_KERNELS) -> Result:
    found = verdict(pair.typical, pair.average, margin)
    sentences = list(_sentences(pair, found, margin))
    accounts = pair.accounts()
    blocks: list[Block] = [figures(pair)]
    told, jobs = list(notes(pair)), comparable.differing(pair.comparison)
    if accounts is not None:
        blocks += [where.lines(*accounts), where.kernels(*accounts, most_kernels)]
        blocks += [where.collectives(*accounts)] if accounts[0].collectives or accounts[1].collectives else []
        profiled = accounts[1].step_ns / accounts[0].step_ns - 1
        apart = profiled_apart(pair, profiled)
        told += [apart] if apart else []
        if pair.unit != "step":
            told.append("Lines and kernels are per step, but a step of B does not do the same work as a step of A.")
        agrees = profiled > 0 if found is Verdict.SLOWER else profiled < 0
        sentences += [where.mostly(*accounts)] if found in _WORDS and agrees and pair.unit == "step" else []
    else:
        told.append("The location of the difference is unknown: one side has no trace of complete steps.")
    return Result(
        name="diff",
        version=2,
        title="B compared with A",
        verdict=" ".join(sentences),
        blocks=(*blocks, *([jobs] if jobs.rows else [])),
        notes=tuple(told),
        more=(
            *([] if jobs.rows else [jobs]),
            *([where.collective_sizes(*accounts)] if accounts is not None else []),
            plot_steps(pair),
            comparable.same(pair.comparison),
            Figure("answer", str(found)),
            *needs(pair, _sought(pair, margin)),
            *sources(pair),
        ),
    )


def figures(pair: RunPair) -> Pairs:
    """Return the step times of both sides, and how they differ."""
    middle, average, noise = pair.typical, pair.average, pair.typical.noise
    return Pairs(
        "step",
        f"Time of a {pair.unit}",
        (
            Item("unit", pair.unit, shown=False),
            Item("before_ns", _ns(pair.typical_ns[0]), "ns", "A, typical"),
            Item("after_ns", _ns(pair.typical_ns[1]), "ns", "B, typical"),
            Item("change", middle.value, "share", "difference"),
            Item("low", middle.low, "share", "from"),
            Item("high", _finite(middle.high), "share", "to"),
            Item("confidence", CONFIDENCE if noise.is_measured else None, "share", shown=False),
            Item("mean_before_ns", _ns(pair.average_ns[0]), "ns", "A, mean"),
            Item("mean_after_ns", _ns(pair.average_ns[1]), "ns", "B, mean"),
            Item("mean_change", average.value, "share", "difference of means"),
            Item("mean_low", average.low, "share", "from"),
            Item("mean_high", _finite(average.high), "share", "to"),
            Item("mean_confidence", CONFIDENCE if noise.is_measured else None, "share", shown=False),
            Item("runs", (len(pair.before), len(pair.after)), "count", "runs of A, of B"),
            Item("steps", _steps(pair), "count", "steps of A, of B"),
            Item("between_runs", _finite(noise.runs), "share", "uncertainty of a run"),
            Item("between_runs_is_measured", noise.is_measured, shown=False),
            Item("between_steps", _finite(noise.steps), "share", "part of it from its steps"),
        ),
    )


def needs(pair: RunPair, effect: float) -> Iterator[Figure]:
    found = estimate_runs_for_pair(pair, effect)
    yield Figure("needed_effect", effect)
    yield Figure("needed_runs", found.runs)
    yield Figure("needed_steps", found.steps)


def sources(pair: RunPair) -> Iterator[Figure]:
    yield Figure("before", tuple(as_typed(run.path) for run in pair.before))
    yield Figure("after", tuple(as_typed(run.path) for run in pair.after))
    yield Figure("steps_from", "timings" if pair.is_timed else "trace")


def _finite(part: float) -> float | None:
    """Return a part; None if a single step leaves it unknown, because JSON has no infinity."""
    return part if isfinite(part) else None


def _ns(time: float) -> float | int:
    """Round a time to whole ns, unless it is only a few ns, as for a token."""
    return round(time) if time >= 1000 else time


def _steps(pair: RunPair) -> tuple[int, int]:
    before, after = (sum(run.steps.times.size for run in side) for side in (pair.before, pair.after))
    return before, after


def _sentences(pair: RunPair, found: Verdict, margin: float) -> Iterator[str]:
    middle, average = pair.typical, pair.average
    before, after = map(format_precise_ns, pair.typical_ns)
    took = f"a typical {pair.unit} takes {after} instead of {before}, {describe_change(middle)}"
    means = f"the mean differs by {describe_change(average)}"
    if found in _WORDS and middle.sign:
        yield f"B is {_WORDS[found]}: {took}."
    elif found in _WORDS:
        typical = f"a typical {pair.unit} by {describe_change(middle)}"
        yield f"B is {_WORDS[found]} because of its long steps: {means}, {typical}."
    elif found is Verdict.SAME:
        yield f"No difference: {took}. Differences up to ±{format_share(margin)} do not count."
    elif middle.sign:
        yield (
            f"Inconclusive: the typical {pair.unit} and the mean contradict each other: {describe_change(middle)} and "
            f"{describe_change(average)}."
        )
    else:
        also = "" if middle.within(margin) is average.within(margin) else f"; {means}"
        yield f"Inconclusive: {took}{also}. {advice(pair, _sought(pair, margin))}"


def _sought(pair: RunPair, margin: float) -> float:
    """Return the difference that more runs should show: as large as it seems to be, at least the margin."""
    return max(margin, abs(pair.typical.value))
