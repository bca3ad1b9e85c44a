"""May a change go in? Yes, if the candidate is shown to be slower than the baseline by no more than the limit.

Passed: even the upper end of the interval is within the limit. Regressed: the candidate is slower beyond chance and by
more than the limit, in its typical step, or in its mean if long steps are rare. Inconclusive: all else, above all if
the interval reaches further than the limit to either side, because then an unchanged candidate would not pass either.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from math import isfinite

from lostflops.core.results import Figure, Result
from lostflops.core.units import format_share
from lostflops.explain.compare import comparable
from lostflops.explain.compare.change import MEAN, RelativeChange
from lostflops.explain.compare.diff import figures, needs, sources
from lostflops.explain.compare.sides import RunPair
from lostflops.explain.compare.wording import (
    advice,
    format_precise_ns,
    format_signed_percent,
    interval,
    long_steps,
    notes,
)


class GateOutcome(StrEnum):
    PASSED = "passed"
    REGRESSED = "regressed"
    INCONCLUSIVE = "inconclusive"

    @property
    def exit_code(self) -> int:
        return {GateOutcome.PASSED: 0, GateOutcome.REGRESSED: 1, GateOutcome.INCONCLUSIVE: 3}[self]


def outcome(typical: RelativeChange, average: RelativeChange, limit: float) -> GateOutcome:
    """Decide whether the candidate passes.

    >>> from lostflops.explain.compare.change import Noise
    >>> seen = Noise(0.01, 0.001, 4)
    >>> typical = [RelativeChange(at, at - 0.02, at + 0.02, seen) for at in (0, 0.02, 0.04)]
    >>> [str(outcome(one, RelativeChange(one.value, -1, 1, seen), 0.03)) for one in typical]
    ['passed', 'inconclusive', 'regressed']
    """
    if _exceeds(typical, limit) or (average.noise.is_measured and _exceeds(average, limit)):
        return GateOutcome.REGRESSED
    return GateOutcome.PASSED if typical.high <= limit else GateOutcome.INCONCLUSIVE


def _exceeds(found: RelativeChange, limit: float) -> bool:
    """Return whether B is slower beyond chance and by more than the limit; if noise is larger than the limit, the whole
    interval must exceed it."""
    return found.low > (0 if found.half_width <= limit else limit) and found.value > limit


def gate(pair: RunPair, limit: float) -> tuple[Result, GateOutcome]:
    found = outcome(pair.typical, pair.average, limit)
    jobs = comparable.differing(pair.comparison)
    result = Result(
        name="gate",
        title=f"Gate: at most {format_share(limit)} slower",
        verdict=" ".join(_sentences(pair, found, limit)),
        blocks=(figures(pair), *([jobs] if jobs.rows else [])),
        notes=(*notes(pair), *long_steps(pair, limit, found is GateOutcome.PASSED)),
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


def _sentences(pair: RunPair, found: GateOutcome, limit: float) -> Iterator[str]:
    middle, average = pair.typical, pair.average
    times = f"{format_precise_ns(pair.typical_ns[1])} instead of {format_precise_ns(pair.typical_ns[0])}"
    took = f"a typical {pair.unit} takes {times}, {format_signed_percent(middle.value)} ({interval(middle)})"
    if found is GateOutcome.REGRESSED and _exceeds(middle, limit):
        yield f"REGRESSED: {took}; at most {format_share(limit)} is allowed."
    elif found is GateOutcome.REGRESSED:
        yield (
            f"REGRESSED because of long steps: the mean differs by {format_signed_percent(average.value)} "
            f"({interval(average, MEAN)}), and at most {format_share(limit)} is allowed; {took}."
        )
    elif found is GateOutcome.PASSED:
        yield f"PASSED: {took}; up to {format_share(limit)} is allowed."
    elif middle.half_width > limit:
        noise = f"±{format_share(middle.half_width)}" if isfinite(middle.half_width) else "unknown from a single step"
        yield (
            f"INCONCLUSIVE: the limit of {format_share(limit)} is below the noise of these runs, {noise}: {took}. "
            f"{advice(pair, limit)}"
        )
    else:
        yield f"INCONCLUSIVE: {took}; up to {format_share(limit)} is allowed. {_closer(pair, limit)}"


def _closer(pair: RunPair, limit: float) -> str:
    """Say how many runs would decide on which side of the limit the candidate is."""
    off = abs(limit - pair.typical.value)
    return f"It is near the limit. {advice(pair, max(off, limit / 2))}"
