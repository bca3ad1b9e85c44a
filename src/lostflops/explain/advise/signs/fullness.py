"""Memory of the fullest rank: how full it is and what is using it, if memory was recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lostflops.account.facts.devices import find_device
from lostflops.account.memory.answers import WITH_MEMORY
from lostflops.account.memory.devices import in_question
from lostflops.account.memory.growth import Grown, growth_of
from lostflops.account.memory.out_of_memory import UNSEEN, RanOut, ran_out
from lostflops.account.memory.owners import Owner
from lostflops.account.memory.peak import Peak, PeakPart, parts_of, peak_of
from lostflops.account.memory.read import memories
from lostflops.core.units import format_bytes, format_share
from lostflops.explain.advise.case import once_per_case
from lostflops.explain.advise.claim import NotChecked
from lostflops.predict.estimate.rates import capacity

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case
    from lostflops.store.run import Run

NEAR: Final = 0.85
"""A device is nearly full if at least this part of its memory is used."""
_MOST_RANKS: Final = 4
_MOST_EVENTS: Final = 2_000_000
"""If a trace has more events than this, a diagnosis does not wait until owners of memory are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fullness:
    """Memory of one rank by owner, at the peak of its window; when memory ran out, if the window shows nothing."""

    rank: int
    step: int | None
    phase: str | None
    total: int
    """Bytes of all owners."""
    used: int
    """Bytes that the allocator held."""
    capacity: int | None
    """Bytes that the device has; None if unknown."""
    owners: Mapping[str, int]
    """Bytes by owner."""
    parts: tuple[PeakPart, ...]
    """Parts of activations by layer."""
    has_run_out: bool

    def is_short(self) -> bool:
        """Return whether memory ran out, or the device is nearly full; raise `NotChecked` if its size is unknown."""
        if self.capacity is None and not self.has_run_out:
            raise NotChecked("the device's memory size is unknown")
        return self.has_run_out or self.used >= NEAR * (self.capacity or 0)

    def share(self, owner: Owner) -> float:
        return self.owners.get(owner, 0) / (self.total or 1)

    @property
    def says(self) -> str:
        """Evidence that memory is short, in words."""
        step = "" if self.step is None else f" in step {self.step}"
        of = "" if self.capacity is None else f" of {format_bytes(self.capacity)}"
        share = "" if self.capacity is None else f" ({format_share(self.used / self.capacity)})"
        end = "memory ran out" if self.has_run_out else "memory peaks"
        phase = f" ({self.phase})" if self.phase else ""
        return f"{end} on rank {self.rank}{step}{phase}: {format_bytes(self.used)}{of}{share}"


@dataclass(frozen=True, slots=True)
class Recorded:
    """Memory of the ranks whose windows were examined."""

    fullness: Fullness | None
    grown: tuple[Grown, ...]


@once_per_case
def read_recorded_memory(case: Case) -> Recorded:
    """Read memory of all steps, even if the case analyses only a few: another step may be the fullest, and growth shows
    only over many."""
    run = case.run.whole
    ended = [one for one in ran_out(run) if not one.is_impossible]
    fullest: tuple[Peak, tuple[PeakPart, ...]] | None = None
    grown: list[Grown] = []
    for peak, parts, left in _windows(run):
        grown += left
        if fullest is None or peak.bytes > fullest[0].bytes:
            fullest = peak, parts
    if fullest is not None:
        return Recorded(_of_window(run, *fullest, ended), tuple(grown))
    return Recorded(_of_end(ended[0]) if ended and ended[0].held else None, ())


def fullness(case: Case) -> Fullness:
    """Return the memory of the fullest rank; raise `NotChecked` if no memory was recorded."""
    fullest = read_recorded_memory(case).fullness
    if fullest is None:
        raise NotChecked("memory was not recorded", record=WITH_MEMORY)
    return fullest


def _windows(run: Run) -> Iterator[tuple[Peak, tuple[PeakPart, ...], list[Grown]]]:
    """Yield the peak, the activations in it and the growth of each of the ranks with the most memory."""
    rows = run.rows("select rank, max(allocated) from memory group by rank order by 2 desc nulls last, 1")
    ranks = [rank for rank, _ in rows[:_MOST_RANKS]]
    listed = ", ".join(map(str, ranks)) or "null"
    ((events,),) = run.rows(f"select coalesce(sum(events), 0)::bigint from ranks where rank in ({listed})")
    if not ranks or events > _MOST_EVENTS:
        return
    for rank in ranks:
        found = {one.device: one for one in memories(run, [rank])}
        for peak in in_question([peak_of(one) for one in found.values()])[:1]:
            parts = parts_of(found[peak.device], peak.event, "layer")
            held = tuple(part for part in parts if part.owner is Owner.ACTIVATIONS)
            yield peak, held, growth_of(run, [found[peak.device]])


def _of_window(run: Run, peak: Peak, parts: tuple[PeakPart, ...], ended: list[RanOut]) -> Fullness:
    size = None if peak.device == "cpu" else device_memory(run, peak.rank)
    return Fullness(
        rank=peak.rank,
        step=peak.step,
        phase=peak.phase,
        total=peak.bytes,
        used=max(peak.bytes, peak.reserved or 0),
        capacity=size,
        owners={owner.value: held for owner, held in peak.owners.items()},
        parts=parts,
        has_run_out=bool(ended),
    )


def _of_end(one: RanOut) -> Fullness:
    """Return the memory when it ran out. Memory that Python does not see counts as activations: in a pass, most of it
    is what the pass keeps."""
    owners = dict(one.held)
    owners[Owner.ACTIVATIONS] = owners.pop(UNSEEN, 0)
    total = sum(owners.values())
    return Fullness(
        rank=one.rank,
        step=one.step,
        phase=one.phase,
        total=total,
        used=one.total or total,
        capacity=one.capacity,
        owners=owners,
        parts=(),
        has_run_out=True,
    )


def device_memory(run: Run, rank: int) -> int | None:
    """Return the bytes that the device of a rank has, by its name; None if unknown."""
    rows = run.rows(f"select device from ranks where rank = {rank} and device is not null")
    return capacity(find_device(rows[0][0])) if rows else None
