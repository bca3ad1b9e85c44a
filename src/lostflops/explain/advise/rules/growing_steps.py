"""Steps get longer and longer because one part of the step grows on all ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.core.estimate import Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_ns, format_share
from lostflops.explain.advise.claim import Claim, NotChecked
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs.extra_time import saving_of_first_steps
from lostflops.explain.advise.signs.series import (
    does_more,
    growing_phase,
    measure_growth,
    series,
)

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case

_FEWEST: Final = 20
"""At least this many normal steps are needed."""
_WHERE: Final = {
    "data": "the wait for a batch",
    "forward": "the forward pass",
    "optimizer": "the optimizer's step",
    "outside": "the time between the passes",
}
_USUAL: Final = {
    "data": "a dataset that reads or sorts more with every batch, a cache that is searched",
    "forward": "state or outputs of earlier steps that the model keeps",
    "optimizer": "a history that the optimizer or its hooks process",
    "outside": "metrics over all past batches, lists of losses or outputs, plots",
}


def _find(case: Case) -> Iterator[Claim]:
    if case.timed_steps is None:
        raise NotChecked("step times were not recorded: record with lostflops run")
    timed = series(case)
    rows = np.flatnonzero(timed.settled)
    if rows.size < _FEWEST or does_more(timed, rows):
        return
    phase = growing_phase(timed, rows)
    if not phase:
        return
    times, third = timed.ns[rows], rows.size // 3
    whole, steady = measure_growth(times)
    own = np.median(timed.column(phase)[rows], axis=1)
    first, last = (round(float(np.median(part))) for part in (own[:third], own[-third:]))
    yield Claim(
        cause="growing_steps",
        what=(
            f"Steps in the last third take {format_share(whole - 1)} longer than in the first, because "
            f"{_WHERE[phase]} grows on all ranks."
        ),
        taken={},
        evidence=(
            Evidence(
                f"{_WHERE[phase].capitalize()} grows from {format_ns(first)} to {format_ns(last)} over {rows.size:,} "
                f"steps of the same work (Kendall's tau of step time {steady:.2f}); other parts of the step, "
                "except the backward pass, grow less.",
                ranks=timed.ranks,
                steps=(int(timed.step[rows[0]]), int(timed.step[rows[-1]])),
            ),
        ),
        strength=Strength.STRONG,
        certain_if="run twice as many steps: they must keep getting longer.",
        fix=f"Limit the size of what grows with every step ({_USUAL[phase]}), or process it only every n steps.",
        saving=saving_of_first_steps(times),
    )


RULE: Final = Rule(
    cause="growing_steps",
    about=(
        "A program that keeps data from every step and processes all of it in the next gets slower and slower: metrics "
        "over all past batches, lists of outputs, a dataset that is searched. Then one part of the step grows on all "
        "ranks, perhaps with its backward pass, and the others do not; a device that slows down stretches all parts."
    ),
    find=_find,
)
