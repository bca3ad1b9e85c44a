"""Memory is nearly full, and much of what the allocator holds is free in pieces that it cannot return."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lostflops.advise.claim import Claim, Gain, NotChecked, Rule
from lostflops.advise.signs.fullness import NEAR, device_memory
from lostflops.memory.fragmentation import Fragmentation, fragmentations
from lostflops.memory.out_of_memory import RanOut, ran_out
from lostflops.results import Evidence
from lostflops.units import format_bytes, format_share

if TYPE_CHECKING:
    from lostflops.advise.case import Case

_MUCH: Final = 0.1
"""Part of what is reserved that must be holes."""


def _find(case: Case) -> Iterator[Claim]:
    told = "(select count(device) from ranks) + (select count(*) from memory where device_type <> 0)"
    has_device = bool(case.run.sql(f"select {told}").fetchall()[0][0])
    ended = {one.rank: one for one in ran_out(case.run) if one.is_fragmented and not one.is_impossible}
    found = [one for one in fragmentations(case.run) if _is_much(case, one, is_short=one.rank in ended)]
    if found:
        worst = max(found, key=lambda one: one.use.split)
        yield _claim(
            f"{format_share(worst.use.split / worst.use.reserved)} of what the allocator holds is holes, "
            f"{format_bytes(worst.use.split)}, while the device is nearly full.",
            _by_blocks(worst),
            0.9,
        )
    elif ended:
        first = next(iter(ended.values()))
        yield _claim(
            f"Memory ran out while {format_bytes(first.unused or 0)} of what the allocator held were not in use.",
            _by_end(first),
            0.7,
        )
    elif has_device and not case.run.sql("select 1 from allocator_blocks limit 1").fetchall():
        raise NotChecked("holes are visible only in a snapshot, which torch.cuda.memory._dump_snapshot(FILE) writes")


def _is_much(case: Case, one: Fragmentation, *, is_short: bool) -> bool:
    size = device_memory(case.run, one.rank)
    is_near = is_short or (size is not None and one.use.reserved >= NEAR * size)
    return is_near and one.use.split >= _MUCH * one.use.reserved


def _by_blocks(one: Fragmentation) -> Iterator[Evidence]:
    use, by = one.use, next((f", kept by {part.line}" for part in one.segments[:1] if part.line), "")
    yield Evidence(
        f"of {format_bytes(use.reserved)} that the allocator holds on {one.device}, {format_bytes(use.split)} are free "
        f"in segments that also hold blocks in use, the largest piece {format_bytes(use.largest_free)}{by}",
        ranks=(one.rank,),
    )
    yield Evidence(
        f"expandable segments would give back {format_bytes(one.expandable_at_most)} of it at most", ranks=(one.rank,)
    )


def _by_end(one: RanOut) -> Iterator[Evidence]:
    yield Evidence(
        f"rank {one.rank} asked for {format_bytes(one.asked or 0)} and did not get them, with "
        f"{format_bytes(one.unused or 0)} reserved and unallocated",
        ranks=(one.rank,),
        steps=() if one.step is None else (one.step,),
    )


def _claim(what: str, evidence: Iterator[Evidence], confidence: float) -> Claim:
    return Claim(
        cause="fragmentation",
        what=what,
        taken={},
        evidence=tuple(evidence),
        confidence=confidence,
        certain_if="compare torch.cuda.memory._dump_snapshot(FILE) with and without expandable segments.",
        fix=(
            "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True. Keep the shapes of batches the same from step to "
            "step (pad, or sort by length)."
        ),
        gain=Gain(0.0, 0.0, 0.0, "it costs no time until memory runs out"),
        is_warning=True,
    )


RULE: Final = Rule(
    cause="fragmentation",
    about=(
        "The allocator gets segments from the device and cuts them into blocks. A segment that still holds a small "
        "block cannot be returned, and its free parts serve only requests that fit. 1 - allocated / reserved does not "
        "show this: most of that is cache, which can be returned."
    ),
    find=_find,
)
