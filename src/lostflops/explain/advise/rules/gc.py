"""Python's garbage collector pauses most ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.pace.blocks import mean
from lostflops.core.estimate import Estimate, Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_ns, format_share
from lostflops.explain.advise.claim import Claim, NotChecked
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs import spread
from lostflops.explain.advise.signs.python_share import FEW, LINE, change, collecting
from lostflops.explain.advise.signs.series import StepSeries, series
from lostflops.predict.whatif.interval import noise_of

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case

_MOST_STEPS: Final = 5


def _find(case: Case) -> Iterator[Claim]:
    timed = series(case)
    pauses = timed.column("gc")
    if not np.isfinite(pauses).any():
        raise NotChecked("garbage collector pauses were not recorded: record again with this version of Lostflops")
    own = pauses[timed.settled] / timed.column("stop - start")[timed.settled]
    told = own[np.isfinite(own).any(axis=1)][:, np.isfinite(own).any(axis=0)]
    share = spread.typical(np.nanmean(told, axis=0).tolist())
    steps = mean(np.nanmean(told, axis=1))
    part = collecting(case) or 0.0
    shown = part * spread.share(case, LINE)
    if max(share, shown) < FEW:
        return
    is_shown = shown > share / 2
    yield Claim(
        cause="gc",
        what=f"Python's garbage collector takes {format_share(max(share, shown))} of the step.",
        taken=spread.attribute_line(case, LINE, part),
        evidence=(_evidence(timed, share),),
        strength=Strength.STRONG,
        certain_if="call gc.disable() before the loop: steps must get shorter by the expected gain.",
        fix=(
            "Remove gc.collect() from the loop. Call gc.collect(); gc.freeze(); gc.disable() before the loop, and "
            "gc.collect() every few hundred steps, on all ranks in the same step."
        ),
        changes=(change(part),) if is_shown else (),
        saving=None if is_shown else Estimate.measured(share, noise_of(steps) * share, "its share of normal steps"),
        instead_of=("warmup",),
    )


def _evidence(timed: StepSeries, share: float) -> Evidence:
    pauses, counts = timed.column("gc"), timed.column("gc_count")
    settled = np.flatnonzero(timed.settled)
    by_step = np.nan_to_num(pauses[settled]).max(axis=1)
    largest = settled[np.argsort(-by_step, kind="stable")[:_MOST_STEPS]]
    often = float(np.nanmean(counts[settled])) if np.isfinite(counts[settled]).any() else 0.0
    return Evidence(
        f"on a typical rank, {often:.3g} collections per step take {format_share(share)} of it ({settled.size:,} "
        f"normal steps); the worst step paused for {format_ns(int(by_step.max(initial=0)))}",
        ranks=timed.ranks,
        steps=tuple(sorted(timed.step[largest].tolist())),
    )


RULE: Final = Rule(
    cause="gc",
    about=(
        "Python pauses from time to time to search for objects that only refer to each other. It visits every live "
        "container, so a program with millions of them has long pauses. Ranks pause in different steps, and each pause "
        "makes all others wait."
    ),
    find=_find,
)
