"""Effect of changes on peak memory: one change after the other edits the blocks of the rank with the highest peak.

The interval includes the uncertainty that each change states, and how far runs of the same job differ, as their steps
do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lostflops.account.memory.answers import HOW_TO_RECORD
from lostflops.account.memory.blocks import BEFORE, RankMemory
from lostflops.account.memory.owners import OWNERS
from lostflops.core.errors import NotApplicable
from lostflops.core.stats import PEAKS_DIFFER
from lostflops.core.units import format_bytes, format_share
from lostflops.predict.whatif.change import Remembered

if TYPE_CHECKING:
    from lostflops.predict.whatif.answer import Applied
    from lostflops.predict.whatif.change import Facts

NOT_RECORDED: Final = f"no memory was recorded; to record it: {HOW_TO_RECORD}"


@dataclass(frozen=True, slots=True)
class Recalled:
    """Predicted memory of the rank with the highest peak, before and after the changes."""

    before: RankMemory
    after: RankMemory
    off: float
    """Half the width of the interval of the peak, in bytes."""
    notes: tuple[str, ...]

    @property
    def low(self) -> int:
        return max(round(self.after.peak_bytes - self.off), 0)

    @property
    def high(self) -> int:
        return round(self.after.peak_bytes + self.off)

    @property
    def verdict(self) -> str:
        before, after = self.before.peak_bytes, self.after.peak_bytes
        whose = f"rank {self.before.rank} ({self.before.device})"
        if before == after:
            return f"Peak memory on {whose} stays {format_bytes(before)}."
        more = "more" if after > before else "less"
        share = format_share(abs(after - before) / before) if before else "much"
        low, high = format_bytes(self.low), format_bytes(self.high)
        return (
            f"Peak memory on {whose} becomes {format_bytes(after)} ({low} to {high}), {share} {more} than "
            f"{format_bytes(before)}."
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "before": self.before.peak_bytes,
            "after": self.after.peak_bytes,
            "low": self.low,
            "high": self.high,
            "rank": self.before.rank,
            "device": self.before.device,
            "owners_before": at_peak(self.before),
            "owners_after": at_peak(self.after),
            "notes": list(self.notes),
        }


def predict_memory(facts: Facts, applied: Sequence[Applied]) -> Recalled:
    """Apply the changes to the recorded memory. `facts` are those before the first change. Raise `NotApplicable` with
    the reason if nothing can be predicted."""
    start = facts.memory
    if start is None:
        raise NotApplicable(NOT_RECORDED)
    memory, notes, squares = start, list[str](), 0.0
    for one in applied:
        did = _edit_memory(memory, one, facts)
        did.memory.self_check()
        squares += ((did.memory.peak_bytes - memory.peak_bytes) * did.doubt) ** 2
        notes += [f"{one.text}: {note}" for note in did.notes]
        memory, facts = did.memory, one.edited.facts or facts
    chance = np.hypot(PEAKS_DIFFER, _unsteady(start)) * memory.peak_bytes
    return Recalled(start, memory, sqrt(squares + float(chance) ** 2), tuple(notes))


def _edit_memory(memory: RankMemory, one: Applied, facts: Facts) -> Remembered:
    if one.change.remember is None:
        raise NotApplicable(f"the effect of {one.text} on memory is unknown")
    try:
        return one.change.remember(memory, one.value, facts)
    except NotApplicable as error:
        raise NotApplicable(f"the effect of {one.text} on memory cannot be predicted: {error}") from error


def _unsteady(memory: RankMemory) -> float:
    """Return the part by which the peak of the highest step is above the median: another window may have missed it."""
    blocks = memory.blocks
    told = (blocks.born > BEFORE) & (blocks.step >= 0)
    if not told.any():
        return 0.0
    peaks = [
        int(memory.total[blocks.born[told & (blocks.step == step)]].max())
        for step in np.unique(blocks.step[told]).tolist()
    ]
    return (max(peaks) - float(np.median(peaks))) / max(memory.peak_bytes, 1)


def at_peak(memory: RankMemory) -> dict[str, int]:
    """Return the bytes of each owner at the peak; they sum to the peak."""
    held = memory.by_owner()[memory.peak + 1]
    return {owner.value: int(size) for owner, size in zip(OWNERS, held.tolist(), strict=True)}


def collect_memory_notes(found: Recalled | str) -> Iterator[str]:
    """Yield the notes to show."""
    if isinstance(found, str):
        yield f"Memory: {found}."
    else:
        yield from (f"Memory, {note}" for note in found.notes)
