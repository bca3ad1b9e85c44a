"""Differences, noise and the number of runs that are needed, in words."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Final

from lostflops.core.units import format_ns, format_share, pluralise
from lostflops.explain.compare.change import MEAN, TYPICAL, RelativeChange
from lostflops.explain.compare.power import Needed, estimate_needed_runs
from lostflops.explain.compare.sides import RunPair

_APART: Final = 0.02


def format_signed_percent(part: float) -> str:
    """Format a part in percent, with its sign.

    >>> format_signed_percent(0.0312), format_signed_percent(-0.2), format_signed_percent(0)
    ('+3.1%', '-20.0%', '0.0%')
    """
    return f"{100 * part:+.1f}%" if part else "0.0%"


def format_signed_ns(ns: int) -> str:
    """Format a difference of times, with its sign.

    >>> format_signed_ns(2_500_000), format_signed_ns(-1_000)
    ('+2.50 ms', '-1.00 us')
    """
    return f"{'+' if ns > 0 else ''}{format_ns(ns)}"


def interval(found: RelativeChange, confidence: float = TYPICAL) -> str:
    """Describe the interval of a change.

    >>> from lostflops.explain.compare.change import Noise
    >>> interval(RelativeChange(0.1, 0.08, 0.12, Noise(0, 0, 1)))
    '97% interval +8.0% to +12.0%'
    """
    if not isfinite(found.high):
        return "interval unknown: too few steps"
    return f"{confidence:.0%} interval {format_signed_percent(found.low)} to {format_signed_percent(found.high)}"


def format_precise_ns(ns: float) -> str:
    return format_ns(round(ns)) if ns >= 1000 else f"{ns:.3g} ns"


def estimate_runs_for_pair(pair: RunPair, effect: float) -> Needed:
    return estimate_needed_runs(pair.typical.noise, effect, runs=pair.runs_per_side, steps=pair.steps_per_run)


def advice(pair: RunPair, effect: float) -> str:
    """Say how many runs, or steps, would show a difference of that size."""
    found = estimate_runs_for_pair(pair, effect)
    size = f"To find a difference of {format_share(effect)}"
    if found.runs is None:
        return f"{size}, no practical number of runs is enough: record longer runs, or use a quieter machine."
    much = "" if pair.typical.noise.is_measured else " (an estimate from one run per side)"
    steps = pluralise(pair.steps_per_run, "step")
    runs = pluralise(max(found.runs, pair.runs_per_side + 1), "run")
    told = f"{size} with 90% power, record {runs} of each with {steps}{much}"
    if found.steps is not None and found.steps > pair.steps_per_run and found.runs > pair.runs_per_side:
        told += f"; or the same number of runs with {pluralise(found.steps, 'step')} each"
    return f"{told}."


def notes(pair: RunPair) -> Iterator[str]:
    """Yield what makes the comparison less reliable."""
    compared = pair.comparison
    if pair.unit != "step":
        yield f"Times are per {pair.unit}, because the batches differ: a larger batch may train differently."
    if compared.mixed:
        yield f"Runs of one side differ among themselves: {', '.join(compared.mixed)}."
    if compared.unknown:
        yield f"Unknown for some runs or steps, so it may differ: {', '.join(compared.unknown)}."
    yield from _about_runs(pair)
    if not pair.is_timed:
        yield "Times are of profiled steps, which are slower than normal steps: a run has no times of normal steps."


def long_steps(pair: RunPair, limit: float, is_fine: bool) -> Iterator[str]:
    """Yield a note if the mean may differ although typical steps do not: the mean is what is paid for."""
    if is_fine and pair.average.high > limit:
        yield (
            f"The mean differs by {format_signed_percent(pair.average.value)} ({interval(pair.average, MEAN)}): "
            "B may have more rare "
            "long steps."
        )


def _estimate_spread(between: float) -> str:
    """Say how much runs may differ.

    >>> _estimate_spread(float("nan"))
    'and too few steps to estimate it, the spread between runs is unknown'
    """
    if not isfinite(between):
        return "and too few steps to estimate it, the spread between runs is unknown"
    return (
        "the spread between runs is estimated from the spread within each run: two runs of the same job may differ by "
        f"{format_share(between)}"
    )


def _about_runs(pair: RunPair) -> Iterator[str]:
    counts = len(pair.before), len(pair.after)
    noise = pair.typical.noise
    if max(counts) == 1:
        yield (
            f"With one run per side, {_estimate_spread(noise.between)}. Record two or more runs of each to measure it."
        )
    elif min(counts) == 1:
        yield "One side has a single run: its spread between runs is taken from the other side."
    starts = [[run.began for run in side] for side in (pair.before, pair.after)]
    if min(counts) > 1 and (max(starts[0]) < min(starts[1]) or max(starts[1]) < min(starts[0])):
        yield (
            "All runs of one side were recorded before those of the other, so a change of the machine in between would "
            "look like a difference. Record A and B alternately."
        )


def profiled_apart(pair: RunPair, profiled: float) -> str | None:
    """Return a note if profiled steps, from which lines and kernels come, differ by another amount than normal
    steps."""
    found = pair.typical
    if pair.unit != "step" or not pair.is_timed or abs(profiled - found.value) <= max(_APART, found.half_width):
        return None
    return (
        f"Profiled steps differ by {format_signed_percent(profiled)}, "
        f"normal steps by {format_signed_percent(found.value)}: lines and kernels are "
        "those of the profiled steps."
    )
