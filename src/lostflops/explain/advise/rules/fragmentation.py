"""Memory is nearly full, and much of the reserved memory is free in pieces that cannot be returned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lostflops.account.memory.fragmentation import Fragmentation, fragmentations
from lostflops.account.memory.out_of_memory import RanOut, ran_out
from lostflops.core.estimate import Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_bytes, format_share
from lostflops.explain.advise.claim import Claim, NotChecked
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs.fullness import NEAR, device_memory

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case

_MUCH: Final = 0.1
"""Holes must be at least this part of the reserved memory."""


def _find(case: Case) -> Iterator[Claim]:
    told = "(select count(device) from ranks) + (select count(*) from memory where device_type <> 0)"
    has_device = bool(case.run.rows(f"select {told}")[0][0])
    ended = {one.rank: one for one in ran_out(case.run) if one.is_fragmented and not one.is_impossible}
    found = [one for one in fragmentations(case.run) if _is_much(case, one, is_short=one.rank in ended)]
    if found:
        worst = max(found, key=lambda one: one.use.split)
        yield _claim(
            f"The device is nearly full, but {format_share(worst.use.split / worst.use.reserved)} of its reserved "
            f"memory ({format_bytes(worst.use.split)}) is holes.",
            _by_blocks(worst),
            Strength.STRONG,
        )
    elif ended:
        first = next(iter(ended.values()))
        yield _claim(
            f"Memory ran out although {format_bytes(first.unused or 0)} of the reserved memory was not in use.",
            _by_end(first),
            Strength.FAIR,
        )
    elif has_device and not case.run.rows("select 1 from allocator_blocks limit 1"):
        raise NotChecked("needs a snapshot of the allocator: write one with torch.cuda.memory._dump_snapshot(FILE)")


def _is_much(case: Case, one: Fragmentation, *, is_short: bool) -> bool:
    size = device_memory(case.run, one.rank)
    is_near = is_short or (size is not None and one.use.reserved >= NEAR * size)
    return is_near and one.use.split >= _MUCH * one.use.reserved


def _by_blocks(one: Fragmentation) -> Iterator[Evidence]:
    use, by = (
        one.use,
        next((f"; the worst segment is kept by {part.line}" for part in one.segments[:1] if part.line), ""),
    )
    yield Evidence(
        f"of {format_bytes(use.reserved)} reserved on {one.device}, {format_bytes(use.split)} is free inside segments "
        f"that are partly in use; the largest free piece is {format_bytes(use.largest_free)}{by}",
        ranks=(one.rank,),
    )
    yield Evidence(
        f"expandable segments would return at most {format_bytes(one.expandable_at_most)} of it", ranks=(one.rank,)
    )


def _by_end(one: RanOut) -> Iterator[Evidence]:
    yield Evidence(
        f"on rank {one.rank}, a request for {format_bytes(one.asked or 0)} failed with "
        f"{format_bytes(one.unused or 0)} reserved but unallocated",
        ranks=(one.rank,),
        steps=() if one.step is None else (one.step,),
    )


def _claim(what: str, evidence: Iterator[Evidence], strength: Strength) -> Claim:
    return Claim(
        cause="fragmentation",
        what=what,
        taken={},
        evidence=tuple(evidence),
        strength=strength,
        certain_if="compare torch.cuda.memory._dump_snapshot(FILE) with and without expandable segments.",
        fix=(
            "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True. Keep batch shapes the same from step to step (pad, "
            "or sort by length)."
        ),
    )


RULE: Final = Rule(
    cause="fragmentation",
    about=(
        "The caching allocator gets segments from the device and splits them into blocks. A segment with even one "
        "small block in use cannot be returned, and its free parts serve only requests that fit. 1 - allocated / "
        "reserved does not measure this: most of that is cache, which can be returned."
    ),
    find=_find,
)
