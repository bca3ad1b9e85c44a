"""All ranks get slower over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.advise.claim import Claim, Gain, Place, Rule
from lostflops.advise.signs.series import Series, Values, series
from lostflops.advise.signs.traced import traced
from lostflops.results import Evidence
from lostflops.units import format_ns, format_share

if TYPE_CHECKING:
    import numpy.typing as npt

    from lostflops.advise.case import Case

_FEWEST: Final = 20
"""Settled steps without which nothing is said,"""
_FEWEST_TRACED: Final = 6
"""and where only the steps of a trace are known."""
_MORE: Final = 1.1
"""Times the first third that the last third must take, on nearly all ranks."""
_STEADY: Final = 0.5
"""Kendall's tau of time and step: how steadily it grows. Steps that are slow now and then stay far below."""
_STEADY_TRACED: Final = 0.8
"""Of few steps it may be that by chance."""
_NEARLY_ALL: Final = 0.9
_BLOCKS: Final = 200
"""Means of so many blocks are ranked where there are more steps."""
_SAME_WORK: Final = 0.02


@dataclass(frozen=True, slots=True)
class _Steps:
    """Steps in order: their time, and by step and rank that of work in which no rank waits for others."""

    ranks: tuple[int, ...]
    step: npt.NDArray[np.int64]
    ns: Values
    work: Values
    what: str
    steady: float
    taken: Mapping[Place, int]


def _find(case: Case) -> Iterator[Claim]:
    steps = _timed(case) if case.told is not None else _traced(case)
    if steps is None:
        return
    grown = [_grown(steps.work[:, at]) for at in range(len(steps.ranks))]
    slower = [ratio >= _MORE and steady >= steps.steady for ratio, steady in grown]
    whole, steady = _grown(steps.ns)
    if np.mean(slower) < _NEARLY_ALL or whole < _MORE or steady < steps.steady:
        return
    third = steps.ns.size // 3
    first, last = (round(float(np.median(part))) for part in (steps.ns[:third], steps.ns[-third:]))
    gain = max(1 - first / float(steps.ns.mean()), 0.0)
    least = min(ratio for (ratio, _), is_slower in zip(grown, slower, strict=True) if is_slower)
    yield Claim(
        cause="throttling",
        what=f"All ranks get slower: steps of the last third take {format_share(whole - 1)} longer than the first.",
        taken=steps.taken,
        evidence=(
            Evidence(
                f"the median step goes from {format_ns(first)} to {format_ns(last)} over {steps.step.size:,} steps "
                f"(Kendall's tau {steady:.2f}), and {steps.what} takes at least {least:.2f} times as long, on "
                f"{sum(slower):,} of {len(slower):,} ranks",
                ranks=steps.ranks,
                steps=(int(steps.step[0]), int(steps.step[-1])),
            ),
        ),
        confidence=0.8,
        certain_if="clocks fall with it: nvidia-smi -q -d PERFORMANCE,CLOCK, on CPUs turbostat or /proc/cpuinfo",
        fix=(
            "nvidia-smi -q -d PERFORMANCE names the reason (power, temperature): better cooling, a higher power cap "
            "(nvidia-smi -pl WATTS), or locked clocks that the machine can hold (nvidia-smi -lgc MIN,MAX); on shared "
            "CPUs look for what else runs there"
        ),
        gain=Gain(gain, gain / 2, min(gain * 1.5, 1.0), "steps that all take as long as those of the first third"),
    )


def _timed(case: Case) -> _Steps | None:
    timed = series(case)
    rows = np.flatnonzero(timed.settled)
    work = timed.column("coalesce(device_forward, forward)")[rows]
    if rows.size < _FEWEST or not np.isfinite(work).all() or _does_more(timed, rows):
        return None
    return _Steps(timed.ranks, timed.step[rows], timed.ns[rows], work, "the forward pass", _STEADY, {})


def _does_more(timed: Series, rows: npt.NDArray[np.int64]) -> bool:
    """Whether later steps have more tokens or samples: then they may well take longer."""
    for unit in ("tokens", "samples"):
        counted = timed.column(unit)[rows].sum(axis=1)
        if np.isfinite(counted).all() and _grown(counted)[0] > 1 + _SAME_WORK:
            return True
    return False


def _traced(case: Case) -> _Steps | None:
    """Only where all steps run as many kernels, or ops: else the work grows."""
    shown = traced(case)
    if shown is None or shown.step.size < _FEWEST_TRACED:
        return None
    for one in case.total.profiles:
        if np.ptp(one.pieces) > _SAME_WORK * max(float(one.pieces.mean()), 1.0):
            return None
    third = shown.step.size // 3
    usual = np.median(shown.lines[:, :third], axis=1)
    taken = shown.beyond(usual, lambda line: line == "compute")
    return _Steps(shown.ranks, shown.step, shown.ns, shown.line("compute").T, "computing", _STEADY_TRACED, taken)


def _grown(values: Values) -> tuple[float, float]:
    """The last third over the first, by medians, and Kendall's tau.

    >>> _grown(np.arange(1.0, 10.0))
    (4.0, 1.0)
    """
    third = values.size // 3
    ratio = float(np.median(values[-third:]) / max(float(np.median(values[:third])), 1.0))
    means = np.array([block.mean() for block in np.array_split(values, min(values.size, _BLOCKS))])
    signs = np.sign(means[None, :] - means[:, None])
    return ratio, float(np.triu(signs, 1).sum() / (means.size * (means.size - 1) / 2))


RULE: Final = Rule(
    cause="throttling",
    about=(
        "Devices that get hot, or draw more power than they may, lower their clocks: the same work takes longer and "
        "longer, on all of them. A machine that others use more and more looks the same."
    ),
    find=_find,
)
