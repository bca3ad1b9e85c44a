"""Peak memory: when it was, what was done then, and what was alive, by owner and by layer, module, op or line.

Parts sum to their owner, and owners to the peak, as integers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from lostflops.account.ledger.modules import NO_MODULE, layer_of
from lostflops.account.ledger.phases import PHASES
from lostflops.account.memory.blocks import BEFORE, Codes, RankMemory
from lostflops.account.memory.owners import CODE, OWNERS, Owner

WAYS: Final = ("layer", "module", "op", "line")
"""Ways to divide an owner's bytes."""
EARLIER: Final = "(from before the window)"
NOTHING: Final = "(unknown place)"
LOST: Final = "(events were lost)"
"""Bytes by which the allocator's total differs from what was recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The moment of the most bytes.

    Phase, step, module, op and line are those of the allocation that made it; None if the window opened with the peak
    or they were not recorded.
    """

    rank: int
    device: str
    event: int
    bytes: int
    at: int
    into_window: int
    is_of_window: bool
    """Whether memory from before the window is unknown, and not part of it."""
    phase: str | None
    step: int | None
    module: str | None
    op: str | None
    line: str | None
    reserved: int | None
    owners: dict[Owner, int]

    @property
    def unattributed_share(self) -> float:
        return self.owners[Owner.UNATTRIBUTED] / self.bytes if self.bytes else 0.0

    @property
    def largest(self) -> list[tuple[Owner, int]]:
        """Owners that hold anything, the largest first."""
        return sorted(((owner, held) for owner, held in self.owners.items() if held), key=lambda item: -item[1])


def peak_of(memory: RankMemory) -> Peak:
    event, blocks = memory.peak, memory.blocks
    at = memory.opened if event == BEFORE else int(memory.time[event])
    made = np.flatnonzero(blocks.born == event)[-1:] if event != BEFORE else np.zeros(0, np.int64)
    phase, step = (int(column[made[0]]) if made.size else -1 for column in (blocks.phase, blocks.step))
    module, op, line = (
        memory.texts[column[made[0]]] or None if made.size else None
        for column in (blocks.module, blocks.op, blocks.line)
    )
    return Peak(
        rank=memory.rank,
        device=memory.device,
        event=event,
        bytes=memory.peak_bytes,
        at=at,
        into_window=at - memory.opened,
        is_of_window=memory.device == "cpu" and not memory.base,
        phase=PHASES[phase] if phase >= 0 else None,
        step=step if step >= 0 else None,
        module=module,
        op=op,
        line=line,
        reserved=int(memory.reserved[event]) if event != BEFORE and memory.reserved.size else None,
        owners=owners_after(memory, event),
    )


def owners_after(memory: RankMemory, event: int) -> dict[Owner, int]:
    """Return a row of `by_owner`, without computing all other rows."""
    rows, sums = memory.alive(event), np.zeros(len(OWNERS), np.int64)
    np.add.at(sums, memory.blocks.owner[rows], memory.blocks.bytes[rows])
    sums[CODE[Owner.UNATTRIBUTED]] += _total(memory, event) - sums.sum()
    return dict(zip(OWNERS, sums.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class PeakPart:
    owner: Owner
    name: str
    bytes: int
    count: int


def parts_of(memory: RankMemory, event: int, by: str) -> list[PeakPart]:
    """Return what was alive after this event by owner and one of `WAYS`, the largest of each owner first."""
    rows = memory.alive(event)
    held: Counter[tuple[int, str]] = Counter()
    count: Counter[tuple[int, str]] = Counter()
    for owner, name, size, number in _sum_by_name(memory, rows, by):
        held[owner, name] += size
        count[owner, name] += number
    nobody = CODE[Owner.UNATTRIBUTED]
    held[nobody, EARLIER] += memory.unknown
    held[nobody, LOST] += _total(memory, event) - held.total()
    ordered = sorted(held.items(), key=lambda item: (item[0][0], -item[1], item[0][1]))
    return [PeakPart(OWNERS[owner], name, size, count[owner, name]) for (owner, name), size in ordered if size]


def _total(memory: RankMemory, event: int) -> int:
    return memory.base if event == BEFORE else int(memory.total[event])


def _sum_by_name(memory: RankMemory, rows: Codes, by: str) -> Iterator[tuple[int, str, int, int]]:
    """Yield owner, name, bytes and number of blocks that are alike; if `by` gives no name, the next way that does."""
    blocks = memory.blocks
    columns = {"module": blocks.module[rows], "op": blocks.op[rows], "line": blocks.line[rows]}
    first = "module" if by == "layer" else by
    code, kind = columns[first], np.zeros(rows.size, np.int64)
    for place, name in enumerate(name for name in ("module", "op", "line") if name != first):
        kind = np.where((code == 0) & (columns[name] > 0), place + 1, kind)
        code = np.where(code == 0, columns[name], code)
    early = (code == 0) & (blocks.born[rows] == BEFORE)
    keys, found = np.unique(np.stack([blocks.owner[rows], code, kind, early]), axis=1, return_inverse=True)
    alike = found.ravel()
    size = np.zeros(keys.shape[1], np.int64)
    np.add.at(size, alike, blocks.bytes[rows])
    number = np.bincount(alike, minlength=keys.shape[1])
    for (owner, text, way, old), held, count in zip(keys.T.tolist(), size.tolist(), number.tolist(), strict=True):
        name = memory.texts[text] or (EARLIER if old else NOTHING)
        yield owner, layer_of(name) if by == "layer" and text and not way else name, held, count


def by_place(memory: RankMemory, event: int, *, whole_layers: bool) -> dict[str, dict[Owner, int]]:
    """Return bytes of each owner by module or layer, the fullest first; bytes without one are in `NO_MODULE`."""
    rows, blocks = memory.alive(event), memory.blocks
    sums = np.zeros((len(memory.texts), len(OWNERS)), np.int64)
    np.add.at(sums, (blocks.module[rows], blocks.owner[rows]), blocks.bytes[rows])
    sums[0, CODE[Owner.UNATTRIBUTED]] += _total(memory, event) - sums.sum()
    found: dict[str, Counter[Owner]] = {}
    for code in np.flatnonzero(sums.any(axis=1)).tolist():
        module = memory.texts[code] or NO_MODULE
        place = layer_of(module) if whole_layers else module
        found.setdefault(place, Counter()).update(dict(zip(OWNERS, sums[code].tolist(), strict=True)))
    ordered = sorted(found.items(), key=lambda item: (-item[1].total(), item[0]))
    return {place: {owner: held[owner] for owner in OWNERS} for place, held in ordered}
