"""Memory grows from step to step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.advise.claim import Claim, Gain, Rule
from lostflops.advise.signs.series import Values, series
from lostflops.results import Evidence
from lostflops.units import counted, format_bytes

if TYPE_CHECKING:
    from lostflops.advise.case import Case

_FEWEST: Final = 12
"""Pairs of settled steps in a row without which nothing is said."""
_OFTEN: Final = 0.4
"""Part of the steps of each third in which memory must grow,"""
_STEADY: Final = 0.5
"""and times what the first third grows by that each later one must: caches fill, a leak goes on."""
_SMALLEST: Final = 0.01
"""Part of the memory at the end by which a rank must have grown,"""
_LEAST: Final = 4 * 1024 * 1024
"""and bytes."""
_THIRDS: Final = 3


def _find(case: Case) -> Iterator[Claim]:
    timed = series(case)
    peaks = timed.column("peak_memory")
    together = np.flatnonzero(timed.settled[1:] & timed.settled[:-1] & (np.diff(timed.step) == 1))
    if together.size < _FEWEST:
        return
    growth = peaks[together + 1] - peaks[together]
    leaking = [at for at in range(len(timed.ranks)) if _leaks(growth[:, at], float(np.nanmax(peaks[:, at], initial=0)))]
    if not leaking:
        return
    ranks = tuple(timed.ranks[at] for at in leaking)
    a_step = round(float(growth[:, leaking].mean(axis=0).max()))
    often = int(np.median((growth[:, leaking] > 0).sum(axis=0)))
    most = int(growth[:, leaking].sum(axis=0).max())
    on_device = bool(case.run.sql("select count(device) from ranks").fetchall()[0][0])
    kind = "device's" if on_device else "process's"
    yield Claim(
        cause="memory_growth",
        what=f"The {kind} memory grows by {format_bytes(a_step)} a step, {format_bytes(a_step * 1000)} in 1,000 steps.",
        taken={},
        evidence=(
            Evidence(
                f"the most that was ever allocated rises in {often:,} of {together.size:,} steps, as fast at the end "
                f"as at first, on {counted(len(ranks), 'rank')}: by {format_bytes(most)} in all",
                ranks=ranks,
                steps=(int(timed.step[together[0]]), int(timed.step[together[-1] + 1])),
            ),
        ),
        confidence=0.85,
        certain_if=(
            "torch.cuda.memory._snapshot() names what is kept"
            if on_device
            else "tracemalloc, or memray run train.py, names what is kept"
        ),
        fix=(
            "keep numbers, not tensors: losses.append(loss.item()) or loss.detach(), never total += loss, which keeps "
            "every step's graph; bound lists, caches and histories that the loop appends to"
        ),
        gain=Gain(0.0, 0.0, 0.0, "it costs no time until memory runs out"),
        ranks=() if len(ranks) == len(timed.ranks) else ranks,
        is_warning=True,
    )


def _leaks(growth: Values, peak: float) -> bool:
    """Whether it grows in every third, as often as not and as fast."""
    if not np.isfinite(growth).all() or growth.sum() < max(_LEAST, _SMALLEST * peak):
        return False
    thirds = np.array_split(growth, _THIRDS)
    sums = [float(third.sum()) for third in thirds]
    often = min(float((third > 0).mean()) for third in thirds)
    return often >= _OFTEN and min(sums[1:]) >= _STEADY * sums[0]


RULE: Final = Rule(
    cause="memory_growth",
    about=(
        "Something is kept from every step: a loss with its graph, a growing list of metrics, an unbounded cache. "
        "Nothing is slow yet, but the job ends when memory does, or swaps long before."
    ),
    find=_find,
)
