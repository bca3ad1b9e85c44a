"""Stragglers: ranks whose own time regularly exceeds their cohort's, and the line on which it does."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Protocol

import numpy as np

from lostflops.account.blame.charges import charges
from lostflops.account.blame.comparison import OWN_LINES, Comparison, Floats
from lostflops.account.blame.habits import PROVEN, SMALLEST, Habit
from lostflops.account.ledger.lines import COMM_LINES, LINES
from lostflops.account.ledger.profile import StepProfile

_ABOVE_OTHERS: Final = 3.0
"""A rank is slow if its excess is at least this many times the typical excess of the other ranks."""
_TALKING: Final = [LINES.index(line) for line in COMM_LINES]
_HALF: Final = 0.5
_SOME: Final = 0.25
_WAITED_FOR: Final = 0.01
"""Share of its own wall time that others must have waited for it."""
_SIGNIFICANT: Final = 0.05
_AS_FOR_FEW: Final = 0.25
"""A rank stands out only if its charge is at least this part of the largest charge of a rank that may be late."""
_CLEARLY: Final = 6.0
_ENOUGH: Final = 8
_TAIL: Final = 0.9
_TAIL_DEVIATIONS: Final = 1.645
"""Standard deviations that hold `_TAIL` of normal values; steps of real ranks have long tails."""
_BY_CHANCE: Final = 0.3
"""The window shows no lateness if the probability of being last this often in it is above this."""
_LIKELY: Final = 0.05
_AGREE: Final = 3
"""Fewest steps of the window that can agree."""
_SPREADS: Final = 4.0
"""Standard errors that the mean excess over steps must reach. Steps that follow each other are not independent, so that
three, which would do for chance alone, alarm in jobs whose ranks share cores."""
_LEAST_CHANCE: Final = 1e-300
_FAR_DEVIATIONS: Final = 20
"""Counts farther from the mean than this many square roots of their number are ignored: that tail is below 1e-20."""
_BEYOND_DOUBT: Final = 0.15
"""Share of the step above which a rank is named even if it is not last often."""

CAUSES: Final = {
    "idle.data": "late_data",
    "idle.alloc": "allocation",
    "idle.host": "host_stall",
    "idle.python": "host_stall",
    "idle.sync": "host_stall",
    "idle.compile": "host_stall",
    "idle.dependency": "device_queue",
    "copy": "copies",
}
"""Cause by line of a late rank; `compute` is `more_work` or `slow_kernels`."""


@dataclass(frozen=True, slots=True)
class LastArrivals:
    """How often a rank was the last to arrive at its collectives."""

    times: int
    """Number of collectives to which it came last."""
    of: int
    """Number of all its collectives."""
    chance: float
    """Mean probability of being the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowRank:
    """A rank that is slow."""

    rank: int
    kind: str
    charged: int
    line: str
    cause: str
    line_excess: int
    excess: int
    """Own time above that of its peers, in ns per step."""
    slow_steps: int
    steps: int
    last: LastArrivals
    p_value: float
    wall: float
    in_steps: bool = True
    """Whether the window has steps; if not, all that was recorded counts as one."""
    habit: Habit | None = None
    """Its record in the timed steps of the whole job; None if these do not show it."""
    confidence: float = 0.0
    """How often a rank with this evidence is late; 0 if it may be chance, so that it must not be called late."""


class RankEvidence(Protocol):
    """Facts that are looked up only for the ranks that are named."""

    def more_flops(self, rank: int) -> float:
        """Return the share by which the rank did more FLOPs than others of its cohort; 0 if unknown."""

    def slower_kernels(self, rank: int) -> float:
        """Return the share by which kernels of the same name take longer on it, short and long ones alike."""


def find(
    comparison: Comparison,
    profiles: Sequence[StepProfile],
    last: Mapping[int, LastArrivals],
    evidence: RankEvidence,
    habits: Mapping[int, Habit] = MappingProxyType({}),
) -> list[SlowRank]:
    """Return the ranks that the window shows to be slow, or that are late by habit; largest charge first. Those with a
    confidence are late; the others may be slow by chance."""
    if not comparison.ranks.size:
        return []
    late = {rank for rank, habit in habits.items() if habit.is_certain and rank in comparison.ranks}
    named = [rank for rank in sorted({*_find_slow_ranks(comparison), *late}) if _works_with_others(profiles, rank)]
    charged = charges(profiles, comparison, named)
    found = [_straggler(comparison, rank, charged, last, evidence) for rank in named]
    ranks, most = comparison.ranks.size, max((one.charged for one in found), default=0)
    waits_are_told = bool(charged.any())
    kept = [
        one
        for one in found
        if one.rank in late
        or (
            (one.charged >= _WAITED_FOR * one.wall * one.steps or not waits_are_told)
            and _counts(one, ranks, most, _noise(comparison, one.rank))
        )
    ]
    # Who was named and does not count passes on what it inherited.
    due = charges(profiles, comparison, [one.rank for one in kept])
    final = [
        replace(
            one,
            charged=round(float(due[comparison.place(one.rank)])),
            kind="persistent" if one.rank in late else one.kind,
            habit=habits.get(one.rank),
            confidence=_confidence(comparison, one, habits.get(one.rank)),
        )
        for one in kept
    ]
    return sorted(final, key=lambda one: (-one.charged, -one.excess))


def _denies(comparison: Comparison, one: SlowRank, habit: Habit) -> bool:
    """Return whether a window with more steps than were timed outside of it does not show the rank to be late."""
    by_step = comparison.by_step[comparison.place(one.rank)]
    return int((~np.isnan(by_step)).sum()) >= habit.steps and one.p_value > _BY_CHANCE


def _confidence(comparison: Comparison, one: SlowRank, habit: Habit | None) -> float:
    """Return how often a rank with this evidence is late; 0 where it may be chance. A rank that does more work need not
    come last to every collective: where small ones follow each other, any rank may."""
    if habit is not None and habit.data_excess and one.cause == "late_data":
        return 0.95
    if habit is not None and habit.is_certain:
        return 0.3 if _denies(comparison, one, habit) else 0.95
    if habit is not None and not habit.is_late and one.cause != "more_work":
        return 0.0
    by_step = comparison.by_step[comparison.place(one.rank)]
    known = by_step[~np.isnan(by_step)]
    is_proven = one.p_value <= PROVEN
    if known.size < _AGREE or not one.in_steps:
        return 0.85 if is_proven else 0.6 if one.p_value <= _LIKELY else 0.0
    is_habit = habit is not None and habit.is_late
    is_steady = float(known.mean()) >= _SPREADS * float(known.std(ddof=1)) / math.sqrt(known.size)
    if not is_steady or one.kind != "persistent":
        return (0.85 if is_habit else 0.5) if is_proven and one.kind == "persistent" else 0.0
    return 0.95 if is_proven or is_habit else 0.85


def _works_with_others(profiles: Sequence[StepProfile], rank: int) -> bool:
    """Return whether the rank communicates: ranks that do not cannot keep others waiting."""
    talking = {one.rank for one in profiles if one.lines[:, _TALKING].any()}
    return rank in talking and len(talking) > 1


def _counts(one: SlowRank, ranks: int, largest: int, noise: float) -> bool:
    """Return whether the rank is late, and not by chance.

    It is last too often; or others waited for it about as much as for any late rank, and its excess is well above what
    ranks and steps differ by anyhow; or its excess is beyond doubt; or there are too few collectives to prove anything.
    """
    could_tell = chance(LastArrivals(one.last.of, one.last.of, one.last.chance), ranks) < _SIGNIFICANT
    stands_out = one.charged >= _AS_FOR_FEW * largest and one.excess >= _CLEARLY * noise
    beyond_doubt = one.excess >= _BEYOND_DOUBT * one.wall
    few_prove_nothing = largest > 0 and not could_tell
    return one.p_value <= _SIGNIFICANT or few_prove_nothing or stands_out or beyond_doubt


def _noise(comparison: Comparison, rank: int) -> float:
    """Return the typical excess of the other ranks, in ns per step; with few ranks, from that in single steps."""
    place = comparison.place(rank)
    if comparison.ranks.size >= _ENOUGH:
        return _deviation(np.delete(comparison.excess, place))
    values = np.delete(comparison.by_step, place, axis=0).ravel()
    return _deviation(values) / math.sqrt(max(comparison.counts[place], 1))


def _deviation(values: Floats) -> float:
    known = np.abs(values[~np.isnan(values)])
    return float(np.quantile(known, _TAIL)) / _TAIL_DEVIATIONS if known.size else 0.0


def _find_slow_ranks(comparison: Comparison) -> list[int]:
    excess, wall = comparison.excess, comparison.wall
    alike = np.bincount(comparison.cohort)[comparison.cohort] > 1
    slow = alike & (excess > 0) & (excess >= SMALLEST * wall)
    return [
        int(comparison.ranks[place])
        for place in np.flatnonzero(slow).tolist()
        if excess[place] >= _ABOVE_OTHERS * float(np.median(np.abs(np.delete(excess, place))))
    ]


def _straggler(
    comparison: Comparison,
    rank: int,
    charged: Floats,
    last: Mapping[int, LastArrivals],
    evidence: RankEvidence,
) -> SlowRank:
    place = comparison.place(rank)
    excess, wall, by_line = comparison.excess, comparison.wall, comparison.lines[place]
    line = OWN_LINES[int(by_line.argmax())]
    own = comparison.by_step[place]
    slow = int((own >= SMALLEST * wall[place]).sum())
    steps = int((~np.isnan(own)).sum())
    arrived_last = last.get(rank, LastArrivals(0, 0, 1.0))
    return SlowRank(
        rank=rank,
        kind="persistent" if slow >= _HALF * steps else "transient",
        charged=round(float(charged[place])),
        line=line,
        cause=CAUSES.get(line) or _computing(comparison, place, evidence),
        line_excess=round(float(by_line.max()) * steps),
        excess=round(float(excess[place])),
        slow_steps=slow,
        steps=steps,
        last=arrived_last,
        p_value=chance(arrived_last, comparison.ranks.size),
        wall=float(wall[place]),
        in_steps=in_steps(comparison),
    )


def in_steps(comparison: Comparison) -> bool:
    return bool((comparison.steps >= 0).any())


def _computing(comparison: Comparison, place: int, evidence: RankEvidence) -> str:
    """Return `more_work` or `slow_kernels`.

    More kernels, or more FLOPs in as many, are more work; the same work that takes longer is slow kernels. If neither
    is clear, as with kernels of one name and all lengths, it is more work if there are more kernels and they are not
    slower.
    """
    rank = int(comparison.ranks[place])
    longer = comparison.lines[place, OWN_LINES.index("compute")]
    needed = longer / max(comparison.computed[place] - longer, 1.0)
    more = max(comparison.pieces[place], evidence.more_flops(rank))
    if more > _HALF * needed:
        return "more_work"
    return "more_work" if more > _SOME * needed > evidence.slower_kernels(rank) else "slow_kernels"


def chance(last: LastArrivals, ranks: int) -> float:
    """Return how likely it is that some rank is the last at least this often by chance alone.

    >>> chance(LastArrivals(3, 3, 0.5), 2), chance(LastArrivals(1, 3, 0.5), 2)
    (0.25, 1.0)
    """
    if not last.of:
        return 1.0
    # What lies farther than this from the mean is too small to count, and there may be millions of steps.
    mean, far = last.of * last.chance, _FAR_DEVIATIONS * math.sqrt(last.of) + _FAR_DEVIATIONS
    least, most = max(last.times, int(mean - far)), min(last.of, int(max(mean, last.times) + far))
    tail = math.fsum(
        math.exp(
            math.lgamma(last.of + 1)
            - math.lgamma(k + 1)
            - math.lgamma(last.of - k + 1)
            + k * math.log(last.chance)
            + (last.of - k) * math.log1p(-min(last.chance, 1 - 1e-12))
        )
        for k in range(least, most + 1)
    )
    return max(float(f"{min(1.0, tail * ranks):.6g}"), _LEAST_CHANCE)
