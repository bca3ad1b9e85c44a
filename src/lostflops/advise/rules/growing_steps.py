"""Steps get longer and longer, because one part of them grows on all ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.advise.claim import Claim, Gain, NotChecked, Rule
from lostflops.advise.signs.series import does_more, growing_phase, grown, series
from lostflops.pace.blocks import typical
from lostflops.results import Evidence
from lostflops.units import format_ns, format_share

if TYPE_CHECKING:
    from lostflops.advise.case import Case

_FEWEST: Final = 20
"""Settled steps without which nothing is said."""
_WHERE: Final = {
    "data": "the wait for a batch",
    "forward": "the forward pass",
    "optimizer": "the optimizer's step",
    "outside": "the time between the passes",
}
_USUAL: Final = {
    "data": "a data set that reads or sorts more with every batch, or a cache that is searched",
    "forward": "states or outputs of earlier steps that the model keeps",
    "optimizer": "a history that the optimizer or its hooks go through",
    "outside": "metrics over all past batches, lists of losses or outputs, plots",
}


def _find(case: Case) -> Iterator[Claim]:
    if case.told is None:
        raise NotChecked("the steps were not timed: record with lostflops run")
    timed = series(case)
    rows = np.flatnonzero(timed.settled)
    if rows.size < _FEWEST or does_more(timed, rows):
        return
    phase = growing_phase(timed, rows)
    if not phase:
        return
    times, third = timed.ns[rows], rows.size // 3
    whole, steady = grown(times)
    own = np.median(timed.column(phase)[rows], axis=1)
    first, last = (round(float(np.median(part))) for part in (own[:third], own[-third:]))
    gain = max(1 - float(np.median(times[:third])) / typical(times).value, 0.0)
    yield Claim(
        cause="growing_steps",
        what=(
            f"Steps get longer: the last third takes {format_share(whole - 1)} longer than the first, because "
            f"{_WHERE[phase]} grows on all ranks."
        ),
        taken={},
        evidence=(
            Evidence(
                f"{_WHERE[phase].capitalize()} goes from {format_ns(first)} to {format_ns(last)} over {rows.size:,} "
                f"steps of the same work (Kendall's tau of step time {steady:.2f}); the other parts of the step grow "
                "less.",
                ranks=timed.ranks,
                steps=(int(timed.step[rows[0]]), int(timed.step[rows[-1]])),
            ),
        ),
        confidence=0.85,
        certain_if="run twice as many steps. If steps go on getting longer, the program adds to something in each",
        fix=f"look for what grows with every step ({_USUAL[phase]}) and bound its size, or do it every N-th step",
        gain=Gain(gain, gain / 2, min(gain * 1.5, 1.0), "steps that all take as long as those of the first third"),
    )


RULE: Final = Rule(
    cause="growing_steps",
    about=(
        "A program that keeps something of every step and goes through all of it in the next takes longer and longer: "
        "metrics over all past batches, lists of outputs, a data set that is searched. One part of the step grows "
        "then, on all ranks, and the others do not; a device that slows down stretches all parts."
    ),
    find=_find,
)
