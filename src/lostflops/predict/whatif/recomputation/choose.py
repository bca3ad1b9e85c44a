"""The cheapest modules to run again so that memory stays below a peak, and all choices that are worth it.

Modules are visited in the order in which they ran; a way (a partial choice) takes a module or goes on inside it, and
ways that reached the same module are compared. A way that costs more and is no lower at any point that is still open is
dropped: what follows changes both alike, so no best choice is lost. Points that all modules so far changed alike count
as one, and a way does not gain by being lower than is enough, whatever follows. In a chain of layers, backward undoes
what forward did in reverse, all open points are alike, and ways are few. Elsewhere they may become too many; then only
ways evenly spread over the order of cost go on, and `exact` is false.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from lostflops.predict.whatif.recomputation.options import Options

Codes = npt.NDArray[np.int64]
_FEW_WAYS, _MOST_WAYS = 50, 2_000
_AT_ONCE: Final = 500
"""Up to this many ways, all pairs are compared together."""
_PARTS: Final = 32
"""Points of the frontier are at least the recorded peak divided by this apart."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice of modules to run again."""

    chosen: tuple[int, ...]
    peak: int
    """Peak memory in bytes."""
    ns: int
    """Extra time of a step, in ns."""
    exact: bool = True
    """Whether all ways were searched; if not, a cheaper choice may exist."""


def frontier(options: Options) -> list[Choice]:
    """Return the best choices, from none to the lowest peak: each is the cheapest with its peak, and the next is the
    cheapest that is lower by a part of the recorded peak. The last one is the lowest to within a thousandth of that."""
    found = [Choice((), options.peak(()), 0)]
    whole = found[0].peak
    step, least = max(whole // _PARTS, 1), max(whole // 1000, 1)
    while True:
        while (after := cheapest(options, found[-1].peak - step)) is not None:
            found.append(after)
        if step == least:
            return found
        step = max(step // 4, least)


def cheapest(whole: Options, limit: int) -> Choice | None:
    """Return the cheapest choice with a peak of at most `limit` bytes, or None. A first search that keeps
    few ways gives an upper bound of the cost."""
    points = _ChoicePoints(_in_doubt(whole, limit), limit)
    found = _search(whole, points, _FEW_WAYS, None)
    if found is None or not found.exact:
        found = _search(whole, points, _MOST_WAYS, found.ns if found else None)
    return found


def _search(whole: Options, useful: _ChoicePoints, most: int, bound: int | None) -> Choice | None:
    options, can = useful.options, whole.can
    count = len(options.modules)
    ways: list[list[_Ways]] = [[] for _ in range(count + 1)]
    ways[0].append(useful.begin())
    exact = True
    for at in range(count):
        arrived = _join_ways(ways[at])
        ways[at] = []
        if arrived is None:
            continue
        arrived, kept_all = useful.best(arrived, at, most, bound)
        exact &= kept_all
        ways[at + 1].append(arrived)
        if can[at]:
            ways[int(options.end[at])].append(arrived.taking(at, int(options.cost[at]), options.moved[at]))
    arrived = _join_ways(ways[count])
    if arrived is None:
        return None
    arrived, _ = useful.best(arrived, count, most, bound)
    if not arrived.cost.size:
        return None
    chosen = arrived.list_chosen(int(arrived.cost.argmin()))
    return Choice(chosen, whole.peak(chosen), whole.takes(chosen), exact)


def _in_doubt(options: Options, limit: int) -> Options:
    """Remove points at which no choice exceeds the limit."""
    rows = options.total + np.maximum(options.moved, 0).sum(axis=0) > limit
    return replace(options, total=options.total[rows], moved=options.moved[:, rows])


@dataclass(frozen=True, slots=True)
class _Ways:
    """Partial choices that reached the same module."""

    cost: Codes
    moved: Codes
    """Change of memory in bytes, by way and point."""
    taken: npt.NDArray[np.bool_]
    """Modules that each way runs again, by way and module."""

    def taking(self, module: int, cost: int, moved: Codes) -> _Ways:
        taken = self.taken.copy()
        taken[:, module] = True
        return _Ways(self.cost + cost, self.moved + moved, taken)

    def rows(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> _Ways:
        return _Ways(self.cost[rows], self.moved[rows], self.taken[rows])

    def list_chosen(self, way: int) -> tuple[int, ...]:
        return tuple(np.flatnonzero(self.taken[way]).tolist())


def _join_ways(ways: list[_Ways]) -> _Ways | None:
    if not ways:
        return None
    columns = ([getattr(one, name) for one in ways] for name in ("cost", "moved", "taken"))
    return _Ways(*(np.concatenate(column) for column in columns))


class _ChoicePoints:
    """What may still change at each point, and which points are the same."""

    def __init__(self, options: Options, limit: int) -> None:
        count = len(options.modules)
        self.options = options
        self._room = limit - options.total
        self._count = count
        helps, harms = np.minimum(options.moved, 0), np.maximum(options.moved, 0)
        # What all modules from each on could still do at most, and which points are the same to those before it.
        none = np.zeros((1, helps.shape[1]), np.int64)
        self._hope, self._fear = (
            np.concatenate((np.cumsum(moves[::-1], axis=0)[::-1], none)) for moves in (helps, harms)
        )
        open_ = np.cumsum((options.moved != 0)[::-1], axis=0)[::-1] > 0
        self._open = np.concatenate((open_, np.zeros((1, helps.shape[1]), np.bool_)))
        self._same = [np.zeros(helps.shape[1], np.int64)]
        for moved in options.moved:
            pair = np.stack((self._same[-1], moved))
            self._same.append(np.unique(pair, axis=1, return_inverse=True)[1].reshape(-1))

        self._helps = -helps.min(axis=1, initial=0)
        self._ratio = np.argsort(options.cost / np.maximum(self._helps, 1), kind="stable")

    def _still(self, ways: _Ways, at: int) -> npt.NDArray[np.float64]:
        """Return a lower bound of what ways still cost: lower their highest point with parts of the modules that save
        most per cost, wherever these save."""
        rest = self._ratio[(self._ratio >= at) & (self._helps[self._ratio] > 0)]
        need = (ways.moved - self._room).max(axis=1, initial=0)
        down, cost = (np.append(0, np.cumsum(column[rest])) for column in (self._helps, self.options.cost))
        return np.asarray(np.interp(need, down, cost), np.float64)

    def begin(self) -> _Ways:
        none = np.zeros((1, self._room.size), np.int64)
        return _Ways(np.zeros(1, np.int64), none, np.zeros((1, self._count), np.bool_))

    def best(self, ways: _Ways, at: int, most: int, bound: int | None) -> tuple[_Ways, bool]:
        """Return the ways that can still stay below the limit and that no other beats, and whether these are all of
        them."""
        ways = ways.rows(((ways.moved + self._hope[at]) <= self._room).all(axis=1))
        if bound is not None:
            ways = ways.rows(ways.cost + self._still(ways, at) < bound + 1)
        points = np.flatnonzero(self._open[at])
        _, first, which = np.unique(self._same[at][points], return_index=True, return_inverse=True)
        enough = np.full(first.size, np.iinfo(np.int64).max)
        np.minimum.at(enough, which, (self._room - self._fear[at])[points])
        levels = np.maximum(ways.moved[:, points[first]], enough)
        ways, levels = _drop_dominated(ways, levels[:, (levels != levels[:1]).any(axis=0)])
        if ways.cost.size <= most:
            return ways, True
        even = np.linspace(0, ways.cost.size - 1, most).astype(np.int64)
        return ways.rows(np.unique(even)), False


def _drop_dominated(ways: _Ways, levels: Codes) -> tuple[_Ways, Codes]:
    """Sort ways by cost, and drop each one if an earlier one is nowhere higher."""
    order = np.lexsort((levels.sum(axis=1), ways.cost))
    ways, levels = ways.rows(order), levels[order]
    if levels.shape[1] == 0:
        return ways.rows(np.arange(min(1, order.size))), levels[:1]
    if levels.shape[1] == 1:
        lowest = np.minimum.accumulate(levels[:, 0])
        better = np.append(True, levels[1:, 0] < lowest[:-1])[: order.size]
        return ways.rows(better), levels[better]
    kept = np.ones(order.size, np.bool_)
    if order.size <= _AT_ONCE:
        below = np.ones((order.size, order.size), np.bool_)
        for level in levels.T:
            below &= level[:, None] <= level
        kept = np.asarray(~np.triu(below, 1).any(axis=0), np.bool_)
        return ways.rows(kept), levels[kept]
    for way in range(order.size):
        if kept[way]:
            later = np.flatnonzero(kept[way + 1 :]) + way + 1
            kept[later[(levels[later] >= levels[way]).all(axis=1)]] = False
    return ways.rows(kept), levels[kept]
