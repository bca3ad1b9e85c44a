"""May a change go in? Yes, if both its typical step and its mean are shown to be slower by no more than the limit.

Passed: the upper ends of both changes are within the limit. Regressed: one of them is more than the limit, and shown to
be more than half of it. Inconclusive: all else, above all if the noise is as large as the limit, because then an
unchanged candidate would not pass either. docs/explanation/comparing.md shows how often each answer is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from math import isfinite

from lostflops.core.errors import UsageError
from lostflops.core.results import Figure, Result
from lostflops.core.units import format_share
from lostflops.explain.compare import comparable
from lostflops.explain.compare.change import RelativeChange
from lostflops.explain.compare.diff import figures, needs, sources
from lostflops.explain.compare.sides import RunPair
from lostflops.explain.compare.wording import advice, describe_change, format_precise_ns, notes


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
    >>> changes = [RelativeChange(at, 0.006, 8, Noise(0.01, 0.001, 8)) for at in (0, 0.025, 0.05)]
    >>> [str(outcome(found, changes[0], 0.03)) for found in changes]
    ['passed', 'inconclusive', 'regressed']
    """
    if _exceeds(typical, limit) or _exceeds(average, limit):
        return GateOutcome.REGRESSED
    return GateOutcome.PASSED if max(typical.at_most, average.at_most) <= limit else GateOutcome.INCONCLUSIVE


def _exceeds(found: RelativeChange, limit: float) -> bool:
    """Return whether B is slower by more than the limit, and by more than half of it beyond chance."""
    return found.value > limit and found.low > limit / 2


def gate(pair: RunPair, limit: float) -> tuple[Result, GateOutcome]:
    """Judge a pair; raise UsageError if the limit is not a share of a step."""
    if not 0 < limit < 1:
        raise UsageError(f"max_regress {limit!r} is not a share between 0 and 1: 0.03 allows a step to be 3% slower")
    found = outcome(pair.typical, pair.average, limit)
    jobs = comparable.differing(pair.comparison)
    result = Result(
        name="gate",
        title=f"Gate: at most {format_share(limit)} slower",
        verdict=" ".join(_sentences(pair, found, limit)),
        blocks=(figures(pair), *([jobs] if jobs.rows else [])),
        notes=tuple(notes(pair)),
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
    took = f"a typical {pair.unit} takes {times}, {describe_change(middle)}"
    means = f"the mean differs by {describe_change(average)}"
    allowed = f"up to {format_share(limit)} is allowed"
    if found is GateOutcome.REGRESSED and _exceeds(middle, limit):
        yield f"REGRESSED: {took}; {allowed}."
    elif found is GateOutcome.REGRESSED:
        yield f"REGRESSED because of long steps: {means}; {took}; {allowed}."
    elif found is GateOutcome.PASSED:
        yield f"PASSED: {took}; {means}; {allowed}."
    else:
        yield f"INCONCLUSIVE: {took}; {means}; {allowed}. {_advice(pair, limit)}"


def _advice(pair: RunPair, limit: float) -> str:
    """Say how many runs would decide on which side of the limit the typical step is, or that only the mean is open."""
    middle = pair.typical
    if middle.at_most <= limit:
        return (
            "Only the mean is open: long steps are too few to show how often they occur. Record longer runs, or more."
        )
    if middle.half_width > limit:
        noise = f"±{format_share(middle.half_width)}" if isfinite(middle.half_width) else "unknown from a single step"
        return f"The limit is below the noise of these runs, {noise}. {advice(pair, limit)}"
    return f"It is near the limit. {advice(pair, max(abs(limit - middle.value), limit / 2))}"
