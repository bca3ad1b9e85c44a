"""Memory in which the forward of some modules is run again, with its blocks as the ledger would find them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.ledger.phases import BACKWARD
from lostflops.account.memory.blocks import Blocks, Codes, RankMemory

if TYPE_CHECKING:
    from lostflops.predict.whatif.recomputation.kept import Kept

GONE, AGAIN, OVER, ITSELF = range(1, 5)
"""Order of what is put before an event: first go the blocks that a forward leaves, then a forward is run again, then an
input goes; the event itself is last."""
_LAST: Final = (1 << 30) - 1


def recompute_modules(memory: RankMemory, found: Sequence[Kept], modules: Collection[int]) -> RankMemory:
    """Return the memory with the forward of these modules run again before their backward pass; none of them is inside
    another."""
    blocks = memory.blocks
    born, died = _keys(blocks.born, ITSELF), _keys(blocks.died, ITSELF)
    rows, births, deaths = [np.arange(len(blocks))], [born], [died]
    for one in found:
        if one.module not in modules:
            continue
        died[one.dropped] = _keys(one.done, GONE)
        died[one.result] = _keys(one.back, GONE)
        if one.given >= 0:
            died[one.given] = _keys(one.over, OVER)
        for which, birth, death in _made_again(blocks, one):
            rows.append(which)
            births.append(birth)
            deaths.append(death)
    every = np.concatenate(rows)
    columns = {field.name: getattr(blocks, field.name)[every] for field in fields(Blocks)}
    columns["phase"][len(blocks) :] = BACKWARD
    return _swept(memory, columns, np.concatenate(births), np.concatenate(deaths))


def _keys(events: Codes | int, order: int, place: Codes | int = 0) -> Codes:
    """Return numbers to sort by: before which event, in which order of what is put there, and which of these."""
    return (np.asarray(events, np.int64) + 1) << 33 | order << 30 | place


def _made_again(blocks: Blocks, one: Kept) -> Iterator[tuple[Codes, Codes, Codes]]:
    """Yield rows, births and deaths of blocks that are made again. Those that backward needs live as long as they did;
    temporary ones go when they did, or at the end of the repeated forward."""
    back = one.back_again
    yield back, _keys(one.back, AGAIN, blocks.born[back]), _keys(blocks.died[back], ITSELF)
    passing = np.setdiff1d(one.made, back)
    died = np.where(blocks.died[passing] < one.cut, blocks.died[passing], _LAST)
    yield passing, _keys(one.back, AGAIN, blocks.born[passing]), _keys(one.back, AGAIN, died)


def _swept(memory: RankMemory, columns: dict[str, Codes], born: Codes, died: Codes) -> RankMemory:
    """Keep recorded events, and put the others between them."""
    count = memory.time.size
    both = np.concatenate((born, died))
    own = _keys(np.arange(count), ITSELF)
    keys = np.union1d(own, both[(both >> 30 & 7) != ITSELF])
    size = keys.size
    columns["born"] = np.where(born < _keys(0, 0), -1, np.searchsorted(keys, born))
    columns["died"] = np.searchsorted(keys, died)
    at = (keys >> 33) - 1
    edges = np.append(memory.time, memory.closed)
    time = edges[np.minimum(at, count)]
    edges = np.concatenate(([memory.opened], time, [memory.closed]))
    columns["start"], columns["stop"] = edges[columns["born"] + 1], edges[columns["died"] + 1]
    made = Blocks(**columns)
    # What recorded totals say beyond the blocks stays where it was recorded.
    first = memory.base - int(memory.blocks.bytes[memory.blocks.born < 0].sum())
    beyond = np.append(first, memory.total - _sums(memory.blocks, count))
    after = np.cumsum((keys >> 30 & 7) == ITSELF)
    total = _sums(made, size) + beyond[after]
    drift = np.append(0, memory.drift)[after] if memory.drift.size else memory.drift
    return replace(memory, time=time, total=total, reserved=memory.reserved[:0], blocks=made, drift=drift)


def _sums(blocks: Blocks, count: int) -> Codes:
    """Return the bytes of blocks after each event."""
    found = np.zeros(count + 2, np.int64)
    np.add.at(found, blocks.born + 1, blocks.bytes)
    np.subtract.at(found, blocks.died + 1, blocks.bytes)
    sums: Codes = found.cumsum()[1:-1]
    return sums
