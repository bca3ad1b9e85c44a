"""Profiled steps are much slower than the others: the profiler distorts what is seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lostflops.advise.claim import Claim, Gain, Rule
from lostflops.errors import UnknownCost
from lostflops.results import Evidence
from lostflops.units import format_ns

if TYPE_CHECKING:
    from lostflops.advise.case import Case

_SLOWER: Final = 1.5
"""Times a settled step that a profiled one must take."""
_FEWEST: Final = 5
"""Settled and profiled steps, each, without which nothing is said."""


def _find(case: Case) -> Iterator[Claim]:
    if case.told is None:
        raise UnknownCost("only steps that were not profiled tell what the profiler costs: record with lostflops run")
    pace = case.told.pace
    ratio = pace.profiled_ratio
    few = min(pace.settled, pace.profiled_steps) < _FEWEST
    if ratio is None or ratio < _SLOWER or few or pace.p50 is None or pace.profiled_ns is None:
        return
    yield Claim(
        cause="profiler",
        what=f"Profiled steps take {ratio:.2f} times as long as others: the ledger shows the profiler as well.",
        taken={},
        evidence=(
            Evidence(
                f"the median of {pace.profiled_steps:,} profiled steps is {format_ns(round(pace.profiled_ns))}, that "
                f"of {pace.settled:,} settled ones {format_ns(round(pace.p50))}",
                ranks=tuple(case.lines),
                steps=tuple(sorted(case.total.steps)),
            ),
        ),
        confidence=0.9,
        certain_if="a window without --with modules or shapes has steps as long as others",
        fix=(
            "lostflops run without --with (no modules, shapes or stacks), and trust shares of host lines less than "
            "those of kernels; in production profile few steps: schedule(wait=..., warmup=1, active=3)"
        ),
        gain=Gain(0.0, 0.0, 0.0, "steps that are not profiled are not slower"),
    )


RULE: Final = Rule(
    cause="profiler",
    about=(
        "To record every op takes time for every op. Where ops are small, profiled steps are slower than others, and "
        "what they show, most of all about the host, is partly the profiler's doing."
    ),
    find=_find,
)
