"""A verdict on ranks, in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from lostflops.account.late.comparison import Comparison
from lostflops.account.late.judge import CLEAR
from lostflops.account.late.ranks import Judgement, SlowRank
from lostflops.core.units import format_ns, format_share

CAUSE_WORDS: Final = {
    "slow_kernels": "the same kernels take longer",
    "more_work": "it has more work",
    "late_data": "its data arrives late",
    "host_stall": "its device waits for the host",
    "allocation": "it allocates memory",
    "device_queue": "queued kernels start late",
    "copies": "it copies more",
}
_MOST_NAMED: Final = 3
_LONG: Final = 1.1
"""A stage is named if its time is at least this many times the mean."""


def latecomers(found: Sequence[SlowRank], others: str = "Other ranks") -> str:
    """Say who is late and why. `others` are those whose waits are known."""
    first = found[0]
    says = describe(first)
    if first.charged:
        says += f" {others} waited {format_ns(first.charged)} for it."
    if len(found) > 1:
        names = ", ".join(f"rank {one.rank} ({one.line})" for one in found[1 : 1 + _MOST_NAMED])
        word = "Also late" if first.is_late else "Also suspected"
        says += f" {word}: {names}" + (" and others." if len(found) > 1 + _MOST_NAMED else ".")
    return says


def describe(one: SlowRank, why: str = "") -> str:
    """Say how late a rank is and why, in the words of every verb."""
    cause = (
        f"{why or CAUSE_WORDS[one.cause]} ({one.line})" if one.line_excess > 0 else "the profiled steps do not show why"
    )
    if not one.in_steps:
        by = f"{format_ns(round(one.late.ns))} ({format_share(one.late.share)} of the time)"
        return f"Rank {one.rank} is late by {by}: {cause}."
    return one.late.say(cause)


def cost_of(comparison: Comparison) -> tuple[float | None, float | None, int | None]:
    """Return by which share of a step its slowest rank exceeds its cohort, and how often the slowest is the same rank.

    The values are the mean excess, the share of steps in which one rank is the slowest most often, and that rank; None
    if no step is known.
    """
    known = ~np.isnan(comparison.by_step)
    if not known.any():
        return None, None, None
    excess = np.where(known, comparison.by_step, -np.inf)
    steps = np.flatnonzero(known.any(axis=0))
    slowest = excess[:, steps].argmax(axis=0)
    shares = excess[slowest, steps] / np.maximum(comparison.wall[slowest], 1)
    counts = np.bincount(slowest)
    return float(shares.mean()), float(counts.max() / steps.size), int(comparison.ranks[counts.argmax()])


def long_stage(comparison: Comparison, stage: Callable[[int], int], *, has_passes: bool) -> str:
    """Say which pipeline stage has much more own time than the others; empty if none has."""
    stages = np.array([stage(rank) for rank in comparison.ranks.tolist()])
    own = {one: float(np.median(comparison.own[stages == one])) for one in np.unique(stages).tolist()}
    longest = max(own, key=lambda one: own[one], default=0)
    times = own[longest] / max(float(np.mean(list(own.values()))), 1.0) if len(own) > 1 else 1.0
    if times < _LONG:
        return ""
    shows = (
        "lostflops pipeline shows the cost" if has_passes else "comm.bubble of lostflops report has the waits for it"
    )
    return f"Stage {longest} takes {times:.2f}x the mean stage: {shows}."


def nobody(found: Judgement) -> str:
    """Say that no rank is late, what would have been found, and how even the ranks are."""
    comparison = found.comparison
    if np.bincount(comparison.cohort).max(initial=0) < 2:
        return "Every rank does different work, so no rank has peers to compare with."
    slowest, _, _ = cost_of(comparison)
    if slowest is None or found.verdict.power is None or comparison.steps.size < 2:
        return "Inconclusive: one step cannot show whether a rank is late."
    says = f"No rank is late. {found.verdict.power.say()}"
    if slowest < CLEAR:
        return says
    return (
        f"{says} Work is uneven: the slowest rank of each step takes {format_share(slowest)} of the step longer than "
        "its peers."
    )
