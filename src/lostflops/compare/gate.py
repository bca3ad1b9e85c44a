"""May a change go in? Passed where the candidate is shown to take no more than the limit longer than the baseline.

Passed, where even the upper end of the interval is within the limit. Regressed, where the candidate is slower beyond
chance and by more than the limit; by its typical step, or by its mean where long steps are few. Otherwise inconclusive:
above all where the interval reaches further than the limit to either side, for then an unchanged candidate would not
pass either.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from math import isfinite

from lostflops.compare import comparable
from lostflops.compare.change import MEAN, Change
from lostflops.compare.diff import figures, needs, sources
from lostflops.compare.sides import Pair
from lostflops.compare.wording import advice, interval, long_steps, notes, shown, signed
from lostflops.results import Figure, Result
from lostflops.units import format_share


class Outcome(StrEnum):
    PASSED = "passed"
    REGRESSED = "regressed"
    INCONCLUSIVE = "inconclusive"

    @property
    def exit_code(self) -> int:
        return {Outcome.PASSED: 0, Outcome.REGRESSED: 1, Outcome.INCONCLUSIVE: 3}[self]


def outcome(typical: Change, average: Change, limit: float) -> Outcome:
    """
    >>> from lostflops.compare.change import Noise
    >>> seen = Noise(0.01, 0.001, 4)
    >>> [str(outcome(Change(at, at - 0.02, at + 0.02, seen), Change(at, -1, 1, seen), 0.03)) for at in (0, 0.02, 0.04)]
    ['passed', 'inconclusive', 'regressed']
    """
    if _exceeds(typical, limit) or (average.noise.is_measured and _exceeds(average, limit)):
        return Outcome.REGRESSED
    return Outcome.PASSED if typical.high <= limit else Outcome.INCONCLUSIVE


def _exceeds(found: Change, limit: float) -> bool:
    """Slower beyond chance and by more than the limit; where chance alone makes more than that, all of the interval."""
    return found.low > (0 if found.half_width <= limit else limit) and found.value > limit


def gate(pair: Pair, limit: float) -> tuple[Result, Outcome]:
    found = outcome(pair.typical, pair.average, limit)
    jobs = comparable.differing(pair.comparison)
    result = Result(
        name="gate",
        title=f"Gate: at most {format_share(limit)} slower",
        verdict=" ".join(_sentences(pair, found, limit)),
        blocks=(figures(pair), *([jobs] if jobs.rows else [])),
        notes=(*notes(pair), *long_steps(pair, limit, found is Outcome.PASSED)),
        more=(
            *([] if jobs.rows else [jobs]),
            comparable.same(pair.comparison),
            Figure("outcome", str(found)),
            Figure("exit_code", found.exit_code),
            Figure("max_regress", limit),
            Figure("noise", noise if isfinite(noise := pair.typical.half_width) else None),
            *needs(pair, limit),
            *sources(pair),
        ),
    )
    return result, found


def _sentences(pair: Pair, found: Outcome, limit: float) -> Iterator[str]:
    middle, average = pair.typical, pair.average
    times = f"{shown(pair.typical_ns[1])} instead of {shown(pair.typical_ns[0])}"
    took = f"a typical {pair.unit} takes {times}, {signed(middle.value)} ({interval(middle)})"
    if found is Outcome.REGRESSED and _exceeds(middle, limit):
        yield f"REGRESSED: {took}; at most {format_share(limit)} is allowed."
    elif found is Outcome.REGRESSED:
        yield (
            f"REGRESSED because of long steps: the mean differs by {signed(average.value)} "
            f"({interval(average, MEAN)}), and at most {format_share(limit)} is allowed; {took}."
        )
    elif found is Outcome.PASSED:
        yield f"PASSED: {took}; up to {format_share(limit)} is allowed."
    elif middle.half_width > limit:
        noise = f"±{format_share(middle.half_width)}" if isfinite(middle.half_width) else "unknown from a single step"
        yield (
            f"INCONCLUSIVE: the limit of {format_share(limit)} is below the noise of these runs, {noise}: {took}. "
            f"{advice(pair, limit)}"
        )
    else:
        yield f"INCONCLUSIVE: {took}; up to {format_share(limit)} is allowed. {_closer(pair, limit)}"


def _closer(pair: Pair, limit: float) -> str:
    """Say how many runs would decide on which side of the limit the candidate is."""
    off = abs(limit - pair.typical.value)
    return f"It is near the limit. {advice(pair, max(off, limit / 2))}"
