"""Blocks that calls of a module keep until their backward pass, and those that recomputation would not free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from lostflops.account.memory.blocks import Codes, RankMemory
from lostflops.account.memory.owners import CODE, Owner

if TYPE_CHECKING:
    from lostflops.predict.whatif.recomputation.calls import ModuleCalls

_ACTIVATIONS: Final = CODE[Owner.ACTIVATIONS]
_OF_A_PASS: Final = (_ACTIVATIONS, CODE[Owner.TEMPORARIES])
_GIVEN: Final = (*_OF_A_PASS, CODE[Owner.BATCHES])
_NEVER: Final = -1
_LOOKED_AT: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One call of a module: times are events of a memory, blocks are rows."""

    module: int
    began: int
    """Event with which its forward began."""
    cut: int
    """Event up to which its forward is run again."""
    done: int
    """Event with which its forward is done."""
    back: int
    """Event with which its backward pass begins."""
    over: int
    """Event until which its input would stay."""
    dropped: Codes
    """Blocks that would be freed when its forward is done, and come back before its backward."""
    result: Codes
    """Its result, if its backward needs it: freed only when its backward begins, because what follows needs it too, and
    made again then."""
    given: int
    """Block of its input; -1 if unknown, or if it stays long enough anyway."""
    made: Codes
    """Blocks that are made again; some of them are needed only for a while."""

    @property
    def back_again(self) -> Codes:
        return np.sort(np.concatenate((self.dropped, self.result)))


def find_kept_blocks(memory: RankMemory, calls: ModuleCalls) -> list[Kept]:
    """Return what each call keeps, in the order of calls."""
    times = (calls.start, calls.cut, calls.stop, calls.back, calls.back_stop)
    edges = np.stack([np.searchsorted(memory.time, column) for column in times], axis=1).tolist()
    by_birth = np.argsort(memory.blocks.born, kind="stable")
    born = memory.blocks.born[by_birth]
    return [
        _one(memory, (by_birth, born), module, row) for module, row in zip(calls.module.tolist(), edges, strict=True)
    ]


def _one(memory: RankMemory, births: tuple[Codes, Codes], module: int, edges: list[int]) -> Kept:
    began, cut, done, back, over = edges
    blocks = memory.blocks
    by_birth, born = births
    rows = by_birth[np.searchsorted(born, began) : np.searchsorted(born, done)]
    rows = rows[np.isin(blocks.owner[rows], _OF_A_PASS)]
    died = blocks.died[rows]
    is_saved = (blocks.owner[rows] == _ACTIVATIONS) & (died >= back) & (died < over) & (blocks.born[rows] < cut)
    saved = rows[is_saved]
    result = _last_made(memory, rows[died >= done])
    given = _last_made(memory, _before(memory, by_birth[: np.searchsorted(born, began)], began))
    return Kept(
        module=module,
        began=began,
        cut=cut,
        done=done,
        back=back,
        over=over,
        dropped=np.sort(saved[saved != result]),
        result=saved[saved == result],
        given=given if given >= 0 and blocks.died[given] < over else _NEVER,
        made=np.sort(rows[blocks.born[rows] < cut]),
    )


def _before(memory: RankMemory, rows: Codes, began: int) -> Codes:
    """Return the last blocks of a pass or a batch that are alive when a call began."""
    blocks, most = memory.blocks, _LOOKED_AT
    while True:
        last = rows[-most:]
        last = last[(blocks.died[last] >= began) & (blocks.born[last] >= 0)]
        last = last[np.isin(blocks.owner[last], _GIVEN)]
        if last.size or most >= rows.size:
            return last
        most *= 8


def _last_made(memory: RankMemory, rows: npt.NDArray[np.int64]) -> int:
    """Return the largest block that the last op made: others are statistics next to it."""
    if not rows.size:
        return _NEVER
    blocks = memory.blocks
    same = (blocks.op[rows] == blocks.op[rows[-1]]) & (blocks.module[rows] == blocks.module[rows[-1]])
    differs = np.flatnonzero(~same)
    rows = rows[differs[-1] + 1 if differs.size else 0 :]
    return int(rows[blocks.bytes[rows].argmax()])
