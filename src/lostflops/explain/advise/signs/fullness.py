"""How full the memory of the fullest rank is, and what is using it, if memory was recorded."""

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
"""Part of a device's memory from which what holds it matters."""
_MOST_RANKS: Final = 4
_MOST_EVENTS: Final = 2_000_000
"""Of the trace, of more than which a diagnosis does not wait for owners."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fullness:
    """Of one rank: bytes by owner at the peak of its window, or when memory ran out where the window tells nothing.
    `used` is what the allocator held, `capacity` what the device has, None where that is not known. `parts` are those
    of activations by layer."""

    rank: int
    step: int | None
    phase: str | None
    total: int
    used: int
    capacity: int | None
    owners: Mapping[str, int]
    parts: tuple[PeakPart, ...]
    has_run_out: bool

    def is_short(self) -> bool:
        """Whether memory ran out, or the device is nearly full; raises `NotChecked` where its size is not known."""
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
    """What windows with memory tell of the ranks that were looked at."""

    fullness: Fullness | None
    grown: tuple[Grown, ...]


@once_per_case
def read_recorded_memory(case: Case) -> Recorded:
    """Of all steps, also where a few stand for them: the fullest may be another, and what grows needs many."""
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
    """Return the fullest rank; raises `NotChecked` where no memory was recorded."""
    fullest = read_recorded_memory(case).fullness
    if fullest is None:
        raise NotChecked("memory was not recorded", record=WITH_MEMORY)
    return fullest


def _windows(run: Run) -> Iterator[tuple[Peak, tuple[PeakPart, ...], list[Grown]]]:
    """Of the ranks with the most memory, one after the other."""
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
    """What Python does not see when memory runs out in a pass is mostly what the pass keeps."""
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
    """Bytes that the device of a rank has, by its name."""
    rows = run.rows(f"select device from ranks where rank = {rank} and device is not null")
    return capacity(find_device(rows[0][0])) if rows else None
