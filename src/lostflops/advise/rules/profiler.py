"""Profiled steps are much slower than normal steps, so the recording is distorted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.advise.claim import Claim, Gain, NotChecked, Rule
from lostflops.advise.signs.series import series
from lostflops.results import Evidence
from lostflops.units import format_ns

if TYPE_CHECKING:
    from lostflops.advise.case import Case

_SLOWER: Final = 2.0
"""Times a settled step that a profiled one must take, by medians,"""
_APART: Final = 1.3
"""and a quick profiled one (of four) a slow settled one: on busy machines single steps are slow."""
_FEWEST: Final = 5
"""Settled and profiled steps, each, without which nothing is said."""


def _find(case: Case) -> Iterator[Claim]:
    if case.told is None:
        raise NotChecked("the collector did not time the steps", "--steps auto")
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
        what=f"Profiled steps ran {ratio:.2f}x slower than normal steps, so shares of host time include the profiler.",
        taken={},
        evidence=(
            Evidence(
                f"the median of {profiled.size:,} profiled steps is {format_ns(round(typical))}, that of "
                f"{settled.size:,} settled ones {format_ns(round(usual))}",
                ranks=tuple(case.lines),
                steps=tuple(sorted(case.total.steps)),
            ),
        ),
        confidence=0.9,
        certain_if="record with lostflops run --with samples: profiled steps must be as long as others.",
        fix=("Record with lostflops run --with samples, which leaves out shapes, modules and stacks."),
        gain=Gain(0.0, 0.0, 0.0, "steps that are not profiled are not slower"),
        is_warning=True,
    )


RULE: Final = Rule(
    cause="profiler",
    about=(
        "The profiler takes time for every op. If ops are small, profiled steps are slower than normal steps, and part "
        "of what they show, mostly about the host, is the profiler itself."
    ),
    find=_find,
)
