"""Memory grows from step to step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.memory.growth import Grown, says
from lostflops.core.errors import UnknownCost
from lostflops.core.estimate import Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_bytes, pluralise
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs.fullness import read_recorded_memory
from lostflops.explain.advise.signs.series import Values, series

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lostflops.explain.advise.case import Case

_FEWEST: Final = 12
"""At least this many pairs of consecutive normal steps are needed."""
_OFTEN: Final = 0.4
"""Memory must grow in at least this part of the steps of each third."""
_STEADY: Final = 0.5
"""Each later third must grow by at least this many times the growth of the first: caches fill up, a leak goes on."""
_SMALLEST: Final = 0.01
"""A rank must grow by at least this part of its final memory."""
_LEAST: Final = 4 * 1024 * 1024
"""A rank must also grow by at least this many bytes."""
_THIRDS: Final = 3
_LONG: Final = 6
"""This many steps of growth are enough by themselves: a cache may still be filling in a shorter window."""
_TELLS: Final = 128 * 1024 * 1024
"""The peak must show further growth only if at least this many bytes are expected: recording itself takes tens of MB,
which hides smaller growth."""


def _find(case: Case) -> Iterator[Claim]:
    """Yield growth by the timings of all steps, with what a window shows to be kept; by the window alone if timings do
    not show it."""
    grown = read_recorded_memory(case).grown
    try:
        claims = list(_by_timings(case, grown))
    except UnknownCost:
        if not grown:
            raise
        claims = []
    yield from claims
    lasting = [one for one in grown if one.seen_steps >= _LONG and not _has_stopped(case, one)]
    if not claims and lasting:
        yield _by_window(lasting)


def _has_stopped(case: Case, one: Grown) -> bool:
    """Return whether the peak in the steps after the window rose much less than it would have with the same growth."""
    rows = case.run.rows(
        f"select count(*) filter (step > {one.steps[-1]}), max(peak_memory) "
        f"- max(peak_memory) filter (step <= {one.steps[-1]}) from timings where rank = {one.rank} "
        f"and attempt = (select max(attempt) from timings)"
    )
    after, rose = rows[0]
    expected = (after or 0) * one.a_step
    return rose is not None and expected >= _TELLS and rose < _STEADY * expected


def _by_timings(case: Case, grown: Sequence[Grown]) -> Iterator[Claim]:
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
    on_device = bool(case.run.rows("select count(device) from ranks")[0][0])
    kind = "device's" if on_device else "process's"
    kept = [one for one in grown if one.rank in ranks]
    yield Claim(
        cause="memory_growth",
        what=(
            f"The {kind} memory grows by {format_bytes(a_step)} per step"
            f"{_describe_holder(kept)}: {format_bytes(a_step * 1000)} "
            "in 1,000 steps."
        ),
        taken={},
        evidence=(
            Evidence(
                f"peak memory rises in {often:,} of {together.size:,} steps "
                f"on {pluralise(len(ranks), 'rank')}, by up to "
                f"{format_bytes(most)} in total, and does not level off",
                ranks=ranks,
                steps=(int(timed.step[together[0]]), int(timed.step[together[-1] + 1])),
            ),
            *_cite_growth(kept),
        ),
        strength=Strength.STRONG,
        certain_if=(
            "call torch.cuda.memory._snapshot() to see which tensors are kept."
            if on_device
            else "run with tracemalloc or memray to see which objects are kept."
        ),
        fix=_fix(kept),
        ranks=() if len(ranks) == len(timed.ranks) else ranks,
    )


def _by_window(kept: Sequence[Grown]) -> Claim:
    own = [one for one in kept if (one.rank, one.device) == (kept[0].rank, kept[0].device)]
    a_step = sum(one.a_step for one in own)
    return Claim(
        cause="memory_growth",
        what=(
            f"Memory grows by {format_bytes(a_step)} per step"
            f"{_describe_holder(kept)}: {format_bytes(a_step * 1000)} in 1,000 "
            "steps."
        ),
        taken={},
        evidence=tuple(_cite_growth(kept)),
        strength=Strength.FAIR,
        certain_if=(
            "record a longer window (lostflops run --steps 20:20 --with shapes,modules,samples,memory). A cache would "
            "stop growing."
        ),
        fix=_fix(kept),
    )


def _describe_holder(kept: Sequence[Grown]) -> str:
    """Describe what holds the memory, such as `, held by kept at train.py:12`; empty if unknown."""
    holder = next((one.holder for one in kept if one.holder is not None), None)
    return "" if holder is None else f", held by {holder}"


def _cite_growth(kept: Sequence[Grown]) -> Iterator[Evidence]:
    if kept:
        rank = kept[0].rank
        lines = {one.holder.line for one in kept if one.holder is not None and one.holder.line}
        yield Evidence(says(kept), ranks=(rank,), steps=kept[0].steps, sources=tuple(sorted(lines)))
        first = next((one for one in kept if one.held), None)
        if first is not None:
            yield Evidence(
                f"{first.holder} holds {pluralise(first.held, 'tensor')} at the end of the window", ranks=(rank,)
            )


def _fix(kept: Sequence[Grown]) -> str:
    holder = next((one.holder for one in kept if one.holder is not None), None)
    here = "" if holder is None else f"Limit the size of {holder}, or store numbers in it. "
    return (
        f"{here}Keep numbers, not tensors: losses.append(loss.item()) or loss.detach(), never total += loss, which "
        "keeps the graph of every step. Limit the size of lists and caches that the loop appends to."
    )


def _leaks(growth: Values, peak: float) -> bool:
    """Return whether memory grows in every third, often enough and about as fast as in the first."""
    if not np.isfinite(growth).all() or growth.sum() < max(_LEAST, _SMALLEST * peak):
        return False
    thirds = np.array_split(growth, _THIRDS)
    sums = [float(third.sum()) for third in thirds]
    often = min(float((third > 0).mean()) for third in thirds)
    return often >= _OFTEN and min(sums[1:]) >= _STEADY * sums[0]


RULE: Final = Rule(
    cause="memory_growth",
    about=(
        "Every step leaves something in memory: a loss with its graph, a growing list of metrics, an unbounded cache. "
        "Nothing is slow yet, but the job will run out of memory, or swap long before that."
    ),
    find=_find,
)
