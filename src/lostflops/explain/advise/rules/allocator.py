"""The caching allocator asks the driver for memory in the middle of training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.ledger.host_traits import Trait
from lostflops.account.ledger.lines import LINES
from lostflops.core.estimate import Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_ns, format_share
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs.computed_ranks import read_computed_ranks

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case
    from lostflops.explain.advise.signs.computed_ranks import Computed

_LEAST: Final = 0.02
_LINE: Final = LINES.index("idle.alloc")
_OFTEN: Final = 1 / 3
"""At least this share of the steps, and more than this share of the ranks, must allocate: the first steps always do,
and one rank alone is a straggler."""
_NO_CACHE: Final = 0.1
"""With more calls to the driver than this for each kernel, no cache is between: a warm one serves nearly all."""
_ABOUT_EMPTYING: Final = {
    True: " Remove torch.cuda.empty_cache() from the loop.",
    False: "",
    None: " If the loop calls torch.cuda.empty_cache(), remove that.",
}
_MANY: Final = 100
"""A trace without steps must have at least this many calls: fewer may be start-up."""


def _find(case: Case) -> Iterator[Claim]:
    spent = case.total.lines["idle.alloc"]
    if not case.wall or spent < _LEAST * case.wall or not _is_habit(case):
        return
    calls = {one.rank: found for one in read_computed_ranks(case) if (found := _calls(one))}
    if not calls:
        return
    names: Counter[str] = Counter()
    for found in calls.values():
        names.update({name: ns for name, (_, ns, _) in found.items()})
    share = spent / case.wall
    steps = next(one.steps for one in read_computed_ranks(case) if one.rank in calls)
    per = "per step" if case.total.steps else "in the accounted time"
    if not case.total.steps and max(count for found in calls.values() for count, _, _ in found.values()) < _MANY:
        return
    most = max(sum(count for count, _, _ in found.values()) for found in calls.values()) / steps
    yield Claim(
        cause="allocator",
        what=(
            f"Devices idle for {format_share(share)} of the time while memory is allocated and freed in steps "
            f"({', '.join(name for name, _ in names.most_common(2))})."
        ),
        taken={(rank, "idle.alloc"): lines["idle.alloc"] for rank, lines in case.lines.items() if lines["idle.alloc"]},
        evidence=tuple(
            Evidence(
                f"rank {rank} calls {name} {round(count / steps, 1):,g} times {per} ({format_ns(round(ns / steps))})",
                events=((rank, event),),
                ranks=(rank,),
                steps=next(one.made.window.number for one in read_computed_ranks(case) if one.rank == rank),
            )
            for rank, found in list(calls.items())[:2]
            for name, (count, ns, event) in sorted(found.items(), key=lambda item: -item[1][1])[:2]
        ),
        strength=Strength.STRONG if case.total.steps else Strength.FAIR,
        certain_if='print torch.cuda.memory_stats()["num_device_alloc"] in each step: it must keep rising.',
        fix=_fix(case, set(names), most),
    )


def _is_habit(case: Case) -> bool:
    """Return whether many steps, also late ones, allocate on many ranks; a trace without steps does not show which are
    first."""
    profiles = [one for one in case.profiles if one.steps.size]
    hit = [one.lines[:, _LINE] > _LEAST * one.lines.sum(axis=1) for one in profiles]
    ranks = [bool(own.mean() >= _OFTEN and own[own.size // 2 :].any()) for own in hit]
    return bool(ranks) and float(np.mean(ranks)) > _OFTEN


def _calls(one: Computed) -> dict[str, tuple[int, int, int]]:
    """Return by name the number of calls, their time in ns, and the event of the longest."""
    host = one.record.host
    rows = host.having(Trait.ALLOC)
    rows = rows[one.made.window.inside.within(host.start[rows], host.start[rows] + 1) > 0]
    ns = host.stop[rows] - host.start[rows]
    found = {}
    for code in np.unique(host.name[rows]).tolist():
        own = host.name[rows] == code
        longest = int(host.event[rows[own][int(ns[own].argmax())]])
        found[one.record.names[code]] = (int(own.sum()), int(ns[own].sum()), longest)
    return found


def _fix(case: Case, names: set[str], calls: float) -> str:
    if all("Host" in name for name in names):
        return (
            "Use DataLoader(..., pin_memory=True) instead of tensor.pin_memory() in the loop, which allocates each "
            "time. Or pin one buffer before the loop and copy into it."
        )
    freed = any("Free" in name or "Release" in name or "Unmap" in name for name in names)
    kernels = case.total.kernels / max(len(case.total.ranks), 1) / max(case.total.step_count / len(case.total.ranks), 1)
    if freed and calls > max(_NO_CACHE * kernels, _MANY):
        return (
            "The caching allocator seems to be off, because so many calls reach the driver: unset "
            "PYTORCH_NO_CUDA_MEMORY_CACHING, and look for a custom one (torch.cuda.memory.CUDAPluggableAllocator)."
        )
    empties = _ABOUT_EMPTYING[_has_emptied(case)]
    pressure = f"{empties} If memory is nearly full, use a smaller batch." if freed else ""
    return (
        "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True. Keep batch shapes the same from step to step (pad, or "
        f"sort by length).{pressure}"
    )


def _has_emptied(case: Case) -> bool | None:
    """Return whether the program was seen to empty the cache, in Python's events or in samples; None without these."""
    ((seen, is_known),) = case.run.rows(
        """select exists (select 1 from events where contains(name, 'empty_cache'))
               or exists (select 1 from samples where contains(stack, 'empty_cache ')),
               exists (select 1 from events where kind = 'python') or exists (select 1 from samples)"""
    )
    return bool(seen) if is_known or seen else None


RULE: Final = Rule(
    cause="allocator",
    about=(
        "PyTorch caches device memory and reuses it. If no cached block fits, it asks the driver for more; if the "
        "device is full, it first frees its cache. These calls take milliseconds and wait until the device is idle. "
        "They should not happen after the first steps."
    ),
    find=_find,
)
