"""Time of running each module's forward again, and its effect on memory at every point where that matters.

Effects of choices add up: the total at a point is the recorded one plus the change by each chosen module. Between two
points at which the effect of any module begins or ends, only the largest recorded total counts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lostflops.predict.whatif.recomputation.edit import AGAIN, GONE, OVER
from lostflops.predict.whatif.recomputation.kept import Kept, find_kept_blocks

if TYPE_CHECKING:
    from lostflops.account.memory.blocks import Codes, RankMemory
    from lostflops.predict.whatif.recomputation.calls import ModuleCalls

_PLACES = 4


@dataclass(frozen=True, slots=True)
class Options:
    """What running each module again costs and what it does to memory."""

    modules: tuple[str, ...]
    """Names in the order of the calls: inner modules follow the one that they are in."""
    end: Codes
    """For each module, the place after its last inner module."""
    cost: Codes
    """Time per step of running each module again, in ns."""
    total: Codes
    """Bytes recorded at each point."""
    moved: Codes
    """Change of these bytes, by module and point."""

    def peak(self, chosen: Collection[int]) -> int:
        return int((self.total + self.moved[list(chosen)].sum(axis=0)).max())

    def takes(self, chosen: Collection[int]) -> int:
        return int(self.cost[list(chosen)].sum())

    @property
    def can(self) -> npt.NDArray[np.bool_]:
        """Modules that make memory smaller anywhere."""
        return np.asarray((self.moved < 0).any(axis=1), np.bool_)


def options(memory: RankMemory, calls: ModuleCalls, found: Sequence[Kept] | None = None) -> Options:
    parts = find_kept_blocks(memory, calls) if found is None else found
    spans = [span for one in parts for span in _spans(memory, one)]
    count = memory.time.size
    points = np.unique([0, *(edge for _, begin, end, _ in spans for edge in (begin, end))])
    total = _highest(memory, points, count)
    moved = np.zeros((len(calls.modules), points.size), np.int64)
    for module, begin, end, by in spans:
        moved[module, np.searchsorted(points, begin) : np.searchsorted(points, end)] += by
    cost = np.round(calls.per_step(calls.ns)).astype(np.int64)
    return Options(calls.modules, calls.end, cost, *_distinct(total, moved))


def _distinct(total: Codes, moved: Codes) -> tuple[Codes, Codes]:
    """Keep only the highest of points that every module changes by the same amount."""
    alike, which = np.unique(moved, axis=1, return_inverse=True)
    highest = np.full(alike.shape[1], np.iinfo(np.int64).min)
    np.maximum.at(highest, which.reshape(-1), total)
    return highest, alike


def _spans(memory: RankMemory, one: Kept) -> list[tuple[int, int, int, int]]:
    """Return (module, first place, end place, change in bytes). The state after event k is at place 4 (k + 1); what is
    put before an event is at the places before it."""
    size = memory.blocks.bytes
    dropped, result = int(size[one.dropped].sum()), int(size[one.result].sum())
    again = _place(one.back, AGAIN)
    found = [
        (one.module, _place(one.done, GONE), again + 1, -dropped),
        (one.module, _place(one.back, GONE), again + 1, -result),
        (one.module, again, again + 1, _highest_again(memory, one)),
    ]
    if one.given >= 0:
        died = int(memory.blocks.died[one.given])
        found.append((one.module, _PLACES * (died + 1), _place(one.over, OVER), int(size[one.given])))
    return found


def _place(event: int, order: int) -> int:
    return _PLACES * event + order


def _highest_again(memory: RankMemory, one: Kept) -> int:
    """Return the most bytes of repeated blocks that exist at once while the forward is run again."""
    blocks, rows = memory.blocks, one.made
    if not rows.size:
        return 0
    back = np.isin(rows, one.back_again)
    change = np.zeros(one.cut - one.began + 1, np.int64)
    np.add.at(change, blocks.born[rows] - one.began, blocks.bytes[rows])
    goes = ~back & (blocks.died[rows] < one.cut)
    np.subtract.at(change, blocks.died[rows[goes]] - one.began, blocks.bytes[rows[goes]])
    return int(change.cumsum().max())


def _highest(memory: RankMemory, points: Codes, count: int) -> Codes:
    """Return the highest recorded total from each point to the next."""
    level = np.append(memory.base, memory.total)
    first = points // _PLACES
    last = np.append((points[1:] - 1) // _PLACES, count)
    # A point between two events has the level after the one before it, and the stretch may end between two as well.
    found: Codes = np.maximum(np.maximum.reduceat(level, first), level[np.maximum(last, first)])
    return found
