"""The first steps, or periodic ones, are far slower and make a large part of the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from lostflops.advise.claim import Claim, Gain, Place, Rule
from lostflops.advise.signs.series import Series, Values, series
from lostflops.advise.signs.traced import Traced, traced
from lostflops.pace.timings import PHASES
from lostflops.results import Evidence
from lostflops.units import counted, format_ns, format_share

if TYPE_CHECKING:
    from lostflops.advise.case import Case

Rows = npt.NDArray[np.int64]

_SLOW: Final = 1.5
"""Times the median of settled steps from which a step is slow."""
_FAR_SLOWER: Final = 3.0
"""And the first ones: a job that starts beside others is slow at first by less, once."""
_FAR_SLOWER_TRACED: Final = 2.0
"""The same of the steps of a trace without timings: on a device they do not differ by what else a host does."""
_FEWEST: Final = 20
"""Settled steps without which nothing is said,"""
_FEWEST_TRACED: Final = 6
"""and where only the steps of a trace are known."""
_FIRST: Final = 0.1
"""Part of all steps' time that slow first steps must take beyond the usual: every job has some."""
_AT_FIRST: Final = 3
"""Slow steps in a row, behind the very first one, that make a warm-up,"""
_AT_FIRST_TRACED: Final = 2
"""and where only the steps of a trace are known: the first may be slow because the profiler begins."""
_PERIODIC: Final = 0.03
_TIMES: Final = 3
"""Slow steps at the same distance of each other that make a period,"""
_REGULAR: Final = 0.7
"""and the part of all slow steps that must be so."""
_MOST_STEPS: Final = 10


@dataclass(frozen=True, slots=True)
class _Steps:
    """Settled steps in order, by the collector, else those of the trace."""

    ranks: tuple[int, ...]
    step: Rows
    ns: Values
    timed: Series | None
    shown: Traced | None

    @property
    def usual(self) -> float:
        return float(np.median(self.ns))

    @property
    def beyond(self) -> Values:
        return np.maximum(self.ns - self.usual, 0)

    def share(self, slow: npt.NDArray[np.bool_]) -> float:
        return float(self.beyond[slow].sum() / self.ns.sum())


def _find(case: Case) -> Iterator[Claim]:
    steps, fewest, in_a_row, far = _steps(case)
    if steps is None or steps.step.size < fewest:
        return
    slow = steps.ns > _SLOW * steps.usual
    first = np.cumprod(steps.ns > far * steps.usual).astype(np.bool_)
    if in_a_row <= first.sum() < slow.size / 2 and steps.share(first) >= _FIRST:
        yield _at_first(steps, first)
    slow &= ~np.cumprod(slow).astype(np.bool_)
    period = _period(steps.step[slow])
    if period and steps.share(slow) >= _PERIODIC:
        yield _periodic(steps, slow, period)


def _steps(case: Case) -> tuple[_Steps | None, int, int, float]:
    """And how many there must be, in all and slow ones in a row, and by how many times slower."""
    if case.told is not None:
        timed = series(case)
        rows = np.flatnonzero(timed.settled)
        return _Steps(timed.ranks, timed.step[rows], timed.ns[rows], timed, None), _FEWEST, _AT_FIRST, _FAR_SLOWER
    shown = traced(case)
    known = None if shown is None else _Steps(shown.ranks, shown.step, shown.ns, None, shown)
    return known, _FEWEST_TRACED, _AT_FIRST_TRACED, _FAR_SLOWER_TRACED


def _period(steps: Rows) -> int:
    """Distance of most slow steps to the one before; 0 where they come without order.

    >>> _period(np.array([5, 15, 25, 35])), _period(np.array([5, 6, 17, 40])), _period(np.array([5, 15]))
    (10, 0, 0)
    """
    apart = Counter(np.diff(steps).tolist())
    if steps.size < _TIMES:
        return 0
    ((period, times),) = apart.most_common(1)
    return period if period > 1 and times >= max(_TIMES - 1, _REGULAR * (steps.size - 1)) else 0


def _taken(steps: _Steps, slow: npt.NDArray[np.bool_]) -> Mapping[Place, int]:
    """Where the trace shows them: what they have beyond the others, line by line."""
    if steps.shown is None:
        return {}
    lines = steps.shown.lines
    kept = Traced(steps.shown.ranks, steps.shown.step[slow], lines[:, slow])
    return kept.beyond(np.median(lines[:, ~slow], axis=1))


def _at_first(steps: _Steps, slow: npt.NDArray[np.bool_]) -> Claim:
    share, count = steps.share(slow), int(slow.sum())
    return Claim(
        cause="warmup",
        what=f"The first {counted(count, 'step')} are far slower, which takes {format_share(share)} of the run.",
        taken=_taken(steps, slow),
        evidence=(_evidence(steps, slow, "the first that were recorded"),),
        confidence=0.75,
        certain_if="a longer run has as many slow steps and no more",
        fix=(
            "in a run that goes on much longer than what was recorded, nothing; else keep caches between runs "
            "(TORCHINDUCTOR_CACHE_DIR=...), choose kernels once (torch.backends.cudnn.benchmark = False), allocate at "
            "the largest shape first, and time steps from behind the warm-up"
        ),
        gain=Gain(share, 0.0, share, "what slow steps take beyond the usual, of all that were recorded"),
    )


def _periodic(steps: _Steps, slow: npt.NDArray[np.bool_], period: int) -> Claim:
    share = steps.share(slow)
    return Claim(
        cause="warmup",
        what=f"Every {period} steps one is far slower{_phase(steps, slow)}: {format_share(share)} of the run.",
        taken=_taken(steps, slow),
        evidence=(_evidence(steps, slow, f"{period} apart"),),
        confidence=0.75,
        certain_if=f"a window over such a step names what runs: lostflops run --steps {steps.step[slow][-1]}:2",
        fix=(
            f"look for what the program does every {period} steps (evaluation, checkpoint, logging, a new epoch's "
            "loader: persistent_workers=True) and do it less often, or beside the training"
        ),
        gain=Gain(share, share * 0.5, share, "what slow steps take beyond the usual, of all settled steps"),
    )


def _phase(steps: _Steps, slow: npt.NDArray[np.bool_]) -> str:
    """Where the training thread is longer in slow steps than in others."""
    timed, more = steps.timed, {}
    for phase in PHASES if timed is not None else ():
        values = timed.column(phase)[timed.settled] if timed is not None else np.empty((0, 0))
        if np.isfinite(values[slow]).any() and np.isfinite(values[~slow]).any():
            more[phase] = float(np.nanmedian(values[slow]) - np.nanmedian(values[~slow]))
    largest = max(more, key=more.__getitem__, default="")
    names = {"data": "waiting for a batch", "outside": "between the passes"}
    return f" ({names.get(largest, f'in the {largest} pass')})" if largest else ""


def _evidence(steps: _Steps, slow: npt.NDArray[np.bool_], how: str) -> Evidence:
    typical = round(float(np.median(steps.ns[slow])))
    return Evidence(
        f"{counted(int(slow.sum()), 'step')}, {how}, of {format_ns(typical)} where the median of "
        f"{steps.step.size:,} steps is {format_ns(round(steps.usual))}",
        ranks=steps.ranks,
        steps=tuple(steps.step[slow][:_MOST_STEPS].tolist()),
    )


RULE: Final = Rule(
    cause="warmup",
    about=(
        "The first steps of a job are slow: caches are empty, libraries choose algorithms, memory is allocated. Others "
        "come back every so many steps, with an epoch, an evaluation or a checkpoint. A median hides both, and the run "
        "pays for them."
    ),
    find=_find,
)
