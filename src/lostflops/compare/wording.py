"""Differences, noise and what would be needed, in words."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Final

from lostflops.compare.change import Change
from lostflops.compare.power import Needed, needed
from lostflops.compare.sides import Pair
from lostflops.units import counted, format_ns, format_share

_APART: Final = 0.02


def signed(part: float) -> str:
    """
    >>> signed(0.0312), signed(-0.2), signed(0)
    ('+3.1%', '-20.0%', '0.0%')
    """
    return f"{100 * part:+.1f}%" if part else "0.0%"


def interval(found: Change) -> str:
    """
    >>> from lostflops.compare.change import Noise
    >>> interval(Change(0.1, 0.08, 0.12, Noise(0, 0, 1)))
    '+8.0% to +12.0%'
    """
    return f"{signed(found.low)} to {signed(found.high)}" if isfinite(found.high) else "anything"


def shown(ns: float) -> str:
    return format_ns(round(ns)) if ns >= 1000 else f"{ns:.3g} ns"


def asked(pair: Pair, effect: float) -> Needed:
    return needed(pair.typical.noise, effect, runs=pair.runs_per_side, steps=pair.steps_per_run)


def advice(pair: Pair, effect: float) -> str:
    """What would tell a difference of that size."""
    found = asked(pair, effect)
    size = f"To tell a difference of {format_share(effect)}"
    if found.runs is None:
        return f"{size} more runs would be needed than can be made: record longer or calmer ones."
    much = "" if pair.typical.noise.is_measured else ", if they differ as those of other jobs do"
    steps = counted(pair.steps_per_run, "step")
    runs = counted(max(found.runs, pair.runs_per_side + 1), "run")
    told = f"{size} in nine of ten cases, record {runs} of each, {steps} long{much}"
    if found.steps is not None and found.steps > pair.steps_per_run and found.runs > pair.runs_per_side:
        told += f"; or as many runs, of {counted(found.steps, 'step')} each"
    return f"{told}."


def notes(pair: Pair) -> Iterator[str]:
    """What makes the comparison doubtful."""
    compared = pair.comparison
    if pair.unit != "step":
        yield f"Times are per {pair.unit}, because the batches differ: a larger one may train otherwise."
    if compared.mixed:
        yield f"Runs of one side differ among themselves: {', '.join(compared.mixed)}."
    if compared.unknown:
        yield f"Not all runs tell, or not the same at all steps, so that it may differ: {', '.join(compared.unknown)}."
    yield from _about_runs(pair)
    if not pair.is_timed:
        yield "Steps are those of the traces, which the profiler makes slower: not every run timed steps without it."


def long_steps(pair: Pair, limit: float, is_fine: bool) -> Iterator[str]:
    """Where typical steps are fine, and the mean may not be: it is what is paid for."""
    if is_fine and pair.average.high > limit:
        yield (
            f"The mean differs by {signed(pair.average.value)} ({interval(pair.average)}): whether B has more of the "
            "long steps that are few cannot be told."
        )


def _about_runs(pair: Pair) -> Iterator[str]:
    counts = len(pair.before), len(pair.after)
    noise = pair.typical.noise
    if max(counts) == 1:
        yield (
            "With one run on each side nothing tells how much runs of the same job differ: what is known of others, "
            f"{format_share(noise.between)} in nine of ten cases, makes the interval wider. Record two or more of each."
        )
    elif min(counts) == 1:
        yield "A side has one run: it is taken to vary from run to run as the other side does."
    starts = [[run.began for run in side] for side in (pair.before, pair.after)]
    if min(counts) > 1 and (max(starts[0]) < min(starts[1]) or max(starts[1]) < min(starts[0])):
        yield (
            "All runs of one side were recorded before those of the other: what changed on the machine meanwhile "
            "counts as a difference. Record them in turns."
        )


def profiled_apart(pair: Pair, profiled: float) -> str | None:
    """Where the traced steps, which lines and kernels are of, differ by something else than all others."""
    found = pair.typical
    if pair.unit != "step" or not pair.is_timed or abs(profiled - found.value) <= max(_APART, found.half_width):
        return None
    return (
        f"Profiled steps differ by {signed(profiled)}, all others by {signed(found.value)}: lines and kernels tell of "
        "the profiled ones, which are few and which the profiler makes slower."
    )
