"""Edits of a rank's memory: blocks of other sizes, fewer, more, or with other lifetimes.

The new total at each event is the recorded one plus the difference in the bytes of blocks. The memory that the
allocator would reserve is not predicted.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from lostflops.account.memory.blocks import BEFORE, Blocks, Codes, Flags, RankMemory
from lostflops.account.memory.owners import CODE, Owner

NO_TEXT: Final = 0


class New(NamedTuple):
    """Blocks to add, with one value of each column per block. Where they would be allocated is unknown."""

    born: Codes
    died: Codes
    bytes: Codes
    owner: Owner


def select_owned_blocks(memory: RankMemory, *owners: Owner) -> Flags:
    """Select blocks that belong to one of these owners."""
    found: Flags = np.isin(memory.blocks.owner, [CODE[owner] for owner in owners])
    return found


def resize_blocks(memory: RankMemory, rows: npt.NDArray[Any], sizes: npt.NDArray[Any] | int) -> RankMemory:
    """Give these rows new sizes in bytes; blocks of size 0 are removed."""
    changed = memory.blocks.bytes.copy()
    changed[rows] = sizes
    return with_blocks(memory, _take_blocks(replace(memory.blocks, bytes=changed), changed > 0))


def scale_blocks(memory: RankMemory, rows: npt.NDArray[Any], factor: float) -> RankMemory:
    return resize_blocks(memory, rows, np.round(memory.blocks.bytes[rows] * factor).astype(np.int64))


def without(memory: RankMemory, gone: Flags) -> RankMemory:
    return with_blocks(memory, _take_blocks(memory.blocks, ~gone))


def change_lifetimes(
    memory: RankMemory, rows: npt.NDArray[Any], *, born: Codes | None = None, died: Codes | None = None
) -> RankMemory:
    """Let these rows live from and until other events."""
    blocks = memory.blocks
    columns = {"born": blocks.born.copy(), "died": blocks.died.copy()}
    for name, given in (("born", born), ("died", died)):
        if given is not None:
            columns[name][rows] = given
    edges = _edges(memory)
    start, stop = edges[columns["born"] + 1], edges[columns["died"] + 1]
    return with_blocks(memory, replace(blocks, **columns, start=start, stop=stop))


def add_blocks(memory: RankMemory, new: New) -> RankMemory:
    """Add blocks; those that would live at no event or hold no bytes are left out."""
    lives = (new.died > new.born) & (new.bytes > 0)
    born, died = new.born[lives], new.died[lives]
    blocks, edges, none = memory.blocks, _edges(memory), np.full(born.size, NO_TEXT)
    more = Blocks(
        born=born,
        died=died,
        start=edges[born + 1],
        stop=edges[died + 1],
        bytes=new.bytes[lives],
        address=np.zeros(born.size, np.int64),
        owner=np.full(born.size, CODE[new.owner]),
        module=none,
        op=none,
        line=none,
        phase=np.full(born.size, BEFORE),
        step=np.full(born.size, BEFORE),
    )
    joined = {
        field.name: np.concatenate([getattr(blocks, field.name), getattr(more, field.name)]) for field in fields(Blocks)
    }
    return with_blocks(memory, Blocks(**joined))


def with_blocks(memory: RankMemory, blocks: Blocks) -> RankMemory:
    """Return the memory with these blocks in place of its own."""
    more = _sum_held_bytes(blocks, memory.time.size) - _sum_held_bytes(memory.blocks, memory.time.size)
    return replace(
        memory,
        blocks=blocks,
        base=memory.base + int(more[0]),
        total=memory.total + more[1:],
        reserved=memory.reserved[:0],
    )


def _sum_held_bytes(blocks: Blocks, events: int) -> Codes:
    """Return the bytes of all blocks when the window opened and after each event."""
    found = np.zeros(events + 2, np.int64)
    np.add.at(found, blocks.born + 1, blocks.bytes)
    np.subtract.at(found, blocks.died + 1, blocks.bytes)
    return np.cumsum(found[:-1])


def _take_blocks(blocks: Blocks, rows: Flags) -> Blocks:
    return Blocks(**{field.name: getattr(blocks, field.name)[rows] for field in fields(Blocks)})


def _edges(memory: RankMemory) -> npt.NDArray[np.int64]:
    """Return the times at which a block can begin or end: the opening, each event, the closing."""
    return np.concatenate([[memory.opened], memory.time, [memory.closed]])
