"""Profiled steps are much slower than normal steps, so the recording is distorted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.core.estimate import Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_ns
from lostflops.explain.advise.claim import Claim, NotChecked
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs.series import series

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case

_SLOWER: Final = 2.0
"""The median profiled step must take at least this many times the median normal step."""
_APART: Final = 1.3
"""The lower quartile of profiled steps must be at least this many times the upper quartile of normal steps: on busy
machines single steps are slow."""
_FEWEST: Final = 5
"""At least this many normal steps, and as many profiled steps, are needed."""


def _find(case: Case) -> Iterator[Claim]:
    if case.timed_steps is None:
        raise NotChecked("step times were not recorded", "--steps auto")
    timed = series(case)
    profiled, settled = timed.ns[timed.profiled & ~timed.compiled & ~timed.first], timed.ns[timed.settled]
    if min(profiled.size, settled.size) < _FEWEST:
        return
    usual, slow = float(np.median(settled)), float(np.quantile(settled, 0.75))
    typical, quick = float(np.median(profiled)), float(np.quantile(profiled, 0.25))
    ratio = typical / usual
    if ratio < _SLOWER or quick < _APART * slow:
        return
    yield Claim(
        cause="profiler",
        what=f"Profiled steps take {ratio:.2f}x the time of normal steps, so host times include profiler overhead.",
        taken={},
        evidence=(
            Evidence(
                f"median step: {format_ns(round(typical))} in {profiled.size:,} profiled steps, "
                f"{format_ns(round(usual))} in {settled.size:,} normal steps",
                ranks=tuple(case.lines),
                steps=tuple(sorted(case.total.steps)),
            ),
        ),
        strength=Strength.STRONG,
        certain_if="record with lostflops run --with samples: profiled steps must be as fast as normal steps.",
        fix="Record with lostflops run --with samples, which leaves out shapes, modules and stacks.",
    )


RULE: Final = Rule(
    cause="profiler",
    about=(
        "The profiler adds time to every op. If ops are small, profiled steps are slower than normal steps, and part "
        "of the recorded time, mostly host time, is the profiler itself."
    ),
    find=_find,
)
