"""Ranks that get slower while the others do not: by the timings of all steps, else by recorded compute time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from lostflops.account.ledger.lines import LINES
from lostflops.core.stats import trend

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case

Codes = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
_COMPUTE: Final = LINES.index("compute")
_FEWEST: Final = 8
"""A trend needs at least this many steps."""
_SLOWER: Final = 1.1
"""A rank slows down if its time relative to the others grows at least this many times: devices vary by some percent as
they warm up."""
_AS_OTHERS: Final = 0.9
"""At first, a rank must take at least this many times the time of the others: a rank that was faster only loses its
advantage."""
_SIGNIFICANT: Final = 1e-3
_QUARTER: Final = 4
_JUMP: Final = 0.5
"""A rank became slower at once if two constant levels leave at most this share of what a straight line leaves."""
_NEAR: Final = 5
_FORWARD: Final = """
    select rank, step, coalesce(device_forward, forward) as ns from timings
    where attempt = {attempt} and coalesce(device_forward, forward) is not null and not coalesce(compiled, false)
      and not coalesce(profiled, false) and step > (select min(step) from timings where attempt = {attempt})
    order by rank, step"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """A rank that gets slower while the others do not."""

    rank: int
    first: float
    """Its time as a multiple of the others' time, in the first quarter of `steps`."""
    last: float
    """The same in the last quarter."""
    mean: float
    """The same in all steps."""
    p_value: float
    steps: tuple[int, int]
    """Numbers of the first and the last step."""
    since: int | None = None
    """The step at which it became slower at once; None if it did so bit by bit."""


def drifts(case: Case) -> list[Drift]:
    """Return the ranks that slow down, the one that slows down most first."""
    timed = _read_forward_times(case)
    ranks, steps, took = timed if timed is not None else _read_compute_times(case)
    whole = ~np.isnan(took).any(axis=0)
    took, steps = took[:, whole], steps[whole]
    if ranks.size < 2 or steps.size < _FEWEST:
        return []
    found = [_drift(int(one), took[at], np.delete(took, at, axis=0), steps) for at, one in enumerate(ranks.tolist())]
    return sorted((one for one in found if one is not None), key=lambda one: -one.last / one.first)


def _read_forward_times(case: Case) -> tuple[Codes, Codes, Floats] | None:
    """Read the times of forward passes, in which no rank waits for another; return None if too few are timed."""
    if case.timed_steps is None:
        return None
    columns = case.run.columns(_FORWARD.format(attempt=case.timed_steps.pace.attempt)).values()
    rank, step, ns = (np.asarray(column).astype(np.int64) for column in columns)
    ranks, row = np.unique(rank, return_inverse=True)
    steps, column = np.unique(step, return_inverse=True)
    took = np.full((ranks.size, steps.size), np.nan)
    took[row, column] = ns
    return (ranks, steps, took) if steps.size >= _FEWEST else None


def _read_compute_times(case: Case) -> tuple[Codes, Codes, Floats]:
    comparison = case.judgement.comparison
    took = np.full((comparison.ranks.size, comparison.steps.size), np.nan)
    for one in case.judgement.profiles:
        if one.steps.size:
            took[comparison.place(one.rank), np.searchsorted(comparison.steps, one.steps)] = one.lines[:, _COMPUTE]
    return comparison.ranks, comparison.steps, took


def _drift(rank: int, own: Floats, others: Floats, steps: Codes) -> Drift | None:
    ratio = own / np.maximum(np.median(others, axis=0), 1.0)
    part = max(steps.size // _QUARTER, 1)
    first, last = float(np.median(ratio[:part])), float(np.median(ratio[-part:]))
    chance = trend(ratio)[1]
    if last < _SLOWER * max(first, 1.0) or first < _AS_OTHERS or chance > _SIGNIFICANT:
        return None
    return Drift(
        rank=rank,
        first=first,
        last=last,
        mean=float(ratio.mean()),
        p_value=chance,
        steps=(int(steps[0]), int(steps[-1])),
        since=_find_jump(ratio, steps),
    )


def _find_jump(ratio: Floats, steps: Codes) -> int | None:
    """Return the step at which values jump; None if a straight line describes them about as well as a jump does."""
    if ratio.size < 2 * _FEWEST:
        return None
    near = np.lib.stride_tricks.sliding_window_view(np.pad(ratio, _NEAR // 2, mode="edge"), _NEAR)
    values = np.median(near, axis=1)  # a single stall is no level
    sums, squares = np.cumsum(values), np.cumsum(values**2)
    count = np.arange(_FEWEST, values.size - _FEWEST + 1)
    before, after = sums[count - 1], sums[-1] - sums[count - 1]
    left = squares[-1] - before**2 / count - after**2 / (values.size - count)
    best = int(np.argmin(left))
    place = np.arange(values.size)
    around = values - np.polyval(np.polyfit(place, values, 1), place)
    return int(steps[count[best]]) if left[best] < _JUMP * float(around @ around) else None
