"""Profiled steps are much slower than the others: the profiler distorts what is seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.advise.claim import Claim, Gain, Rule
from lostflops.advise.signs.series import series
from lostflops.errors import UnknownCost
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
        raise UnknownCost("only steps that were not profiled tell what the profiler costs: record with lostflops run")
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
        what=f"Profiled steps take {ratio:.2f} times as long as others: the ledger shows the profiler as well.",
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
        certain_if="a window of lostflops run --with samples has steps as long as others",
        fix=(
            "lostflops run --with samples (no shapes, modules or stacks), and trust shares of host lines less than "
            "those of kernels; in production profile few steps: schedule(wait=..., warmup=1, active=3)"
        ),
        gain=Gain(0.0, 0.0, 0.0, "steps that are not profiled are not slower"),
        is_warning=True,
    )


RULE: Final = Rule(
    cause="profiler",
    about=(
        "To record every op takes time for every op. Where ops are small, profiled steps are slower than others, and "
        "what they show, most of all about the host, is partly the profiler's doing."
    ),
    find=_find,
)
