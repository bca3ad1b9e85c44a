"""Growth: memory that each step leaves and no later step frees, by the site that allocates it and its holder.

A site leaves something if a block that it allocated in a step is still there when the window closes. It grows if it
does so in every step, with as many blocks each time; the last step may differ. Turnover is not growth: in a bounded
history a block from before the window goes for each new one, and what one step hands to the next is gone after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.memory.blocks import BEFORE, Codes, Ns, RankMemory
from lostflops.account.memory.holdings import of_window
from lostflops.account.memory.owners import CODE, OWNERS, Owner
from lostflops.core.results import Field, Table
from lostflops.core.units import format_bytes

if TYPE_CHECKING:
    from lostflops.store.run import Run

FEWEST: Final = 3
"""Fewest whole steps of a window that can show growth."""
_ALLOWED: Final = (Owner.PARAMETERS, Owner.GRADIENTS, Owner.OPTIMIZER, Owner.BUFFERS)
"""Owners whose bytes may stay: state of a parameter that is first used late is not growth."""
_MOST_BYTES: Final = 1 << 62
_FAR: Final = 10_000
_MATTERS: Final = 0.1
"""Part of the peak that growth must reach in `_FAR` steps."""
_LEAST: Final = 1024
"""Bytes that a step must leave: a list of losses is kept for good reason, and a device gives each 512."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Object that holds tensors, such as a list."""

    name: str
    line: str
    """Source line that fills it, as `file.py:12`."""

    def __str__(self) -> str:
        return " at ".join(filter(None, (self.name, self.line)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """A site of one device and rank that grows."""

    rank: int
    device: str
    op: str
    module: str
    owner: Owner
    steps: tuple[int, ...]
    left: tuple[int, ...]
    """Bytes of it that are there at the end of each step."""
    count: int
    holder: Holder | None = None
    """Object that holds them; if `is_by_graph`, one that may hold the graph."""
    is_by_graph: bool = False
    """Whether a graph of autograd holds them."""
    held: int = 0
    """Number of tensors that the holder has when the window closes, including those from before it."""

    @property
    def seen_steps(self) -> int:
        """Steps in which it grew: those of the window, or as many as the holder has tensors for."""
        return max(len(self.steps), self.held // (1 if self.is_by_graph else self.count))

    @property
    def a_step(self) -> int:
        """Bytes by which it grows per step, without the last step, whose tensors may still be in use."""
        return self.left[-2] // (len(self.left) - 1)

    @property
    def site(self) -> str:
        return " of ".join(filter(None, (self.op, self.module))) or "an unknown site"


@dataclass(frozen=True, slots=True)
class StepMoments:
    """Whole steps of the window."""

    number: tuple[int, ...]
    start: Ns
    """When each begins."""

    def at(self, time: Ns) -> Codes:
        """Return the place of the step that each time is in, -1 before the first; after the last it is the last."""
        return np.searchsorted(self.start, time, side="right") - 1


def growth_of(run: Run, memories: Iterable[RankMemory]) -> list[Grown]:
    """Return all sites that grow, most bytes per step first."""
    found: list[Grown] = []
    for memory in memories:
        rows = _read_held_tensors(run, memory)
        sizes = Counter(holder for _, holder, _ in rows)
        fresh = {address: holder for address, holder, is_before in rows if not is_before}
        grown = growing(memory, _steps(run, memory), fresh)
        found += [replace(one, held=sizes[one.holder]) if one.holder else one for one in grown]
    return sorted(found, key=lambda one: (-one.a_step, one.rank, one.site))


def growing(memory: RankMemory, steps: StepMoments, holders: dict[int, Holder]) -> list[Grown]:
    """Return the sites that grow; `holders` are by address, of tensors without an owner when the window closed."""
    if len(steps.number) < FEWEST:
        return []
    sites = list(_sites(memory, steps, holders))
    matter = [one for one in sites if one.a_step >= max(_LEAST, _MATTERS * memory.peak_bytes / _FAR)]
    named = [one.holder for one in sites if one.holder is not None]
    suspects = set(named or (holder for holder in holders.values() if holder.line))
    if len(suspects) != 1:
        return matter
    (suspect,) = suspects
    return [one if one.holder else replace(one, holder=suspect, is_by_graph=True) for one in matter]


def table(found: Sequence[Grown]) -> Table:
    """Return the table for `lostflops memory`."""
    fields = (
        Field("rank"),
        Field("device", shown=False),
        Field("site", label="allocated by"),
        Field("op", shown=False),
        Field("module", shown=False),
        Field("owner", shown=False),
        Field("bytes_a_step", "bytes", "per step"),
        Field("blocks_a_step", "count", "blocks"),
        Field("name", label="held by"),
        Field("line", label="filled at"),
        Field("is_by_graph", shown=False),
    )
    rows = tuple(
        (
            one.rank,
            one.device,
            one.site,
            one.op or None,
            one.module or None,
            one.owner.value,
            one.a_step,
            one.count,
            one.holder.name or None if one.holder else None,
            one.holder.line or None if one.holder else None,
            one.is_by_graph,
        )
        for one in found
    )
    more = tuple({"steps": list(one.steps), "left": list(one.left)} for one in found)
    return Table("growth", "Memory that every step leaves behind", fields, rows, most_shown=8, more=more)


def says(found: Sequence[Grown]) -> str:
    """Describe the growth of the rank that grows most; empty if none does."""
    if not found:
        return ""
    rank, device = found[0].rank, found[0].device
    own = [one for one in found if (one.rank, one.device) == (rank, device)]
    a_step, steps = sum(one.a_step for one in own), len(own[0].steps)
    first = next((one for one in own if one.holder is not None), own[0])
    held = "" if first.holder is None else f", held by {first.holder}"
    held += ", with the graph that it belongs to" if first.is_by_graph else ""
    return (
        f"Each of {steps} steps leaves {format_bytes(a_step)} on {device} of rank {rank} that no later step frees, "
        f"most of it from {own[0].site}{held}."
    )


def _sites(memory: RankMemory, steps: StepMoments, holders: dict[int, Holder]) -> Iterator[Grown]:
    blocks, last = memory.blocks, memory.time.size
    allowed = np.isin(blocks.owner, [CODE[owner] for owner in _ALLOWED])
    step = steps.at(blocks.start)
    rows = np.flatnonzero((blocks.born != BEFORE) & (blocks.died >= last) & (step >= 0) & ~allowed)
    moved_on = _moved_on(memory, steps, np.flatnonzero((blocks.born == BEFORE) & (blocks.died < last) & ~allowed))
    site = blocks.op[rows] * len(memory.texts) + blocks.module[rows]
    for code in np.unique(site).tolist():
        own = rows[site == code]
        counts, left = _net(step[own], blocks.bytes[own], len(steps.number), moved_on)
        if counts.min() < 1 or len(set(counts[:-1].tolist())) > 1:
            continue
        sizes = np.bincount(blocks.owner[own], weights=blocks.bytes[own], minlength=len(OWNERS))
        # What the last step made may be held by variables that the next one sets anew.
        earlier = own[step[own] < len(steps.number) - 1]
        kept = Counter(holders[address] for address in blocks.address[earlier].tolist() if address in holders)
        op, module = divmod(code, len(memory.texts))
        yield Grown(
            rank=memory.rank,
            device=memory.device,
            op=memory.texts[op],
            module=memory.texts[module],
            owner=OWNERS[int(sizes.argmax())],
            steps=steps.number,
            left=tuple(left.cumsum().tolist()),
            count=int(counts[0]),
            holder=kept.most_common(1)[0][0] if kept else None,
        )


def _moved_on(memory: RankMemory, steps: StepMoments, gone: Codes) -> Counter[tuple[int, int]]:
    """Count blocks from before the window that went in each step, by size.

    The first step is left out: what goes there was in use by the step before the window.
    """
    step = steps.at(memory.blocks.stop[gone])
    pairs = zip(step.tolist(), memory.blocks.bytes[gone].tolist(), strict=True)
    return Counter((place, size) for place, size in pairs if place > 0)


def _net(step: Codes, size: Codes, steps: int, moved_on: Counter[tuple[int, int]]) -> tuple[Codes, Codes]:
    """Return blocks and bytes that each step left, less those of the same size that went meanwhile."""
    counts, left = np.zeros(steps, np.int64), np.zeros(steps, np.int64)
    for (place, each), count in Counter(zip(step.tolist(), size.tolist(), strict=True)).items():
        stays = max(0, count - moved_on[place, each])
        counts[place] += stays
        left[place] = min(int(left[place]) + stays * each, _MOST_BYTES)  # a trace may state any size
    return counts, left


def _steps(run: Run, memory: RankMemory) -> StepMoments:
    """Read the steps that the window holds whole."""
    rows = run.rows(
        f"select step, start from steps where rank = {memory.rank} and stop <= {memory.closed} order by start"
    )
    return StepMoments(tuple(step for step, _ in rows), np.array([start for _, start in rows], np.int64))


def _read_held_tensors(run: Run, memory: RankMemory) -> list[tuple[int, Holder, bool]]:
    """Read tensors that are there at the end and have no owner but a holder with a name or a line.

    A row has the address, the holder, and whether the tensor was there at the beginning.
    """
    kind, _, index = memory.device.rpartition(":")
    device = f"device_type <> 0 and device_index = {index}" if kind else "device_type = 0"
    rows = run.rows(
        f"select address, coalesce(name, ''), coalesce(line, ''), coalesce(before, false) from holdings "
        f"where rank = {memory.rank} and {device} and owner is null and gone is null "
        f"and {of_window(run, memory.rank)} and (name is not null or line is not null)"
    )
    return [(address, Holder(name, line), is_before) for address, name, line, is_before in rows]
