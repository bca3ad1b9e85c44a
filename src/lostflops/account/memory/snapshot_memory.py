"""Facts that an allocator's snapshot adds to its history: source lines, and blocks older than the history.

A history names no threads, so phases, and with them most owners, are unknown: a block that lives and dies in it may be
anything. It stays unattributed, by source line.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.memory.blocks import BEFORE, Blocks, Codes, RankMemory
from lostflops.account.memory.owners import CODE, Owner

if TYPE_CHECKING:
    from lostflops.store.run import Run

ABOUT: Final = (
    "Memory is read from the history of a snapshot, which has no phases: source lines are known, owners are not. "
    "Sizes are as requested, before the allocator rounds them."
)
_UNATTRIBUTED: Final = CODE[Owner.UNATTRIBUTED]
_TEMPORARIES: Final = CODE[Owner.TEMPORARIES]


def told_by_snapshot(run: Run, memory: RankMemory) -> RankMemory:
    """Add lines and blocks of the snapshot, in place of unknown bytes; return `memory` itself if it is of a trace."""
    kind, _, index = memory.device.partition(":")
    where = f"rank = {int(memory.rank)} and device_type = 1 and device_index = {int(index or -1)}"
    if kind != "cuda" or not _is_from_snapshot(run, where):
        return memory
    lines, early = _lines_of_events(run, where), _early(run, where, memory)
    if len(lines) != memory.time.size:
        return memory
    texts = dict.fromkeys((*memory.texts, *lines, *(line for _, _, line in early)))
    place = {text: code for code, text in enumerate(texts)}
    told, blocks = np.array([place[line] for line in lines], np.int64), memory.blocks
    line = np.where((blocks.born != BEFORE) & (blocks.line == 0), told[np.maximum(blocks.born, 0)], blocks.line)
    owner = np.where(blocks.owner == _TEMPORARIES, _UNATTRIBUTED, blocks.owner)
    more = _blocks(early, place, memory)
    return replace(
        memory,
        blocks=_concat_blocks(more, replace(blocks, line=line, owner=owner)),
        unknown=memory.unknown - int(more.bytes.sum()),
        texts=tuple(place),
        notes=(*memory.notes, ABOUT),
    )


def _is_from_snapshot(run: Run, where: str) -> bool:
    if not run.rows(f"select 1 from allocator_blocks where {where} limit 1"):
        return False
    return not run.rows(f"select 1 from memory where {where} and lane is not null limit 1")


def _lines_of_events(run: Run, where: str) -> list[str]:
    """Read lines in the order of the memory's events: by time, and as recorded if that is the same."""
    columns = run.columns(
        f"select time, coalesce(line, '') as line from memory where {where} and bytes <> 0 and time is not null"
    )
    order = np.argsort(np.asarray(columns["time"]), kind="stable")
    return [str(line) for line in np.asarray(columns["line"])[order]]


def _early(run: Run, where: str, memory: RankMemory) -> list[tuple[int, int, str]]:
    """Read address, size and line of blocks in the snapshot that are not in the history; empty if they do not fit."""
    rows = run.rows(
        f"select address, requested, coalesce(line, '') from allocator_blocks "
        f"where {where} and state <> 'free' and requested > 0 order by address"
    )
    left = set(memory.blocks.address[memory.blocks.died == memory.time.size].tolist())
    early = [row for row in rows if row[0] not in left]
    return early if sum(size for _, size, _ in early) <= memory.unknown else []


def _blocks(early: list[tuple[int, int, str]], place: dict[str, int], memory: RankMemory) -> Blocks:
    def all_of(value: int) -> Codes:
        return np.full(len(early), value, np.int64)

    return Blocks(
        born=all_of(BEFORE),
        died=all_of(memory.time.size),
        start=all_of(memory.opened),
        stop=all_of(memory.closed),
        bytes=np.array([size for _, size, _ in early], np.int64),
        address=np.array([address for address, _, _ in early], np.int64),
        owner=all_of(_UNATTRIBUTED),
        module=all_of(0),
        op=all_of(0),
        line=np.array([place[line] for _, _, line in early], np.int64),
        phase=all_of(-1),
        step=all_of(-1),
    )


def _concat_blocks(first: Blocks, second: Blocks) -> Blocks:
    names = [field.name for field in fields(Blocks)]
    return Blocks(**{name: np.concatenate((getattr(first, name), getattr(second, name))) for name in names})
