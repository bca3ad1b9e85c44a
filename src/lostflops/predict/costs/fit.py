"""Straight pieces fitted to measured times: T(S) = alpha + beta S, as few as the data justify.

Each size counts once, by the median of its samples. Errors are relative, so that 1 KB weighs as much as 1 GB. A size
that is far from its piece (`FAR`, or four sigma) does not bend the line. A single size does not show whether it was
disturbed or is a bend, so intervals next to it include both. Another piece is added only if chance would not give its
gain at any of the places where it could begin (`CHANCE`), and if the times that it predicts differ visibly (`VISIBLE`).
docs/explanation/calibration.md gives the reasons.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import comb, inf, sqrt
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.core.errors import UnknownCost
from lostflops.core.stats import f_tail, t_quantile
from lostflops.predict.costs.curve import Apart, Constant, Curve, CurvePiece

CONFIDENCE: Final = 0.99
CHANCE: Final = 0.01
VISIBLE: Final = 0.05
FAR: Final = 0.25
STRAY: Final = 0.15
MOST_PIECES: Final = 6
FEWEST_SIZES: Final = 3
_MOST_EDGES: Final = 40
_TURNS: Final = 12
"""Number of iterations: the first half weighs by absolute residuals, which outliers bend little, the second half leaves
out sizes that are far."""
_NEAR: Final = 7
"""Number of neighbouring sizes whose scatter is pooled."""
_MANY: Final = 8
"""Fewer samples do not show their own scatter: that of the sizes around counts instead."""
_FEW: Final = {2: 1.196, 3: 1.495, 4: 1.363, 5: 1.206, 6: 1.2, 7: 1.14, 8: 1.129, 9: 1.107}
"""Factor on the median deviation of a few samples, by their number (Croux and Rousseeuw, 1992)."""
_QUIET: Final = 0.01
"""Sizes that are closer to a line than this, relative, count as on it when pieces are searched."""
_FINEST: Final = 0.001
"""No line is known better than this, relative, however well a few sizes happen to fit it."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def fit_curve(sizes: Sequence[int], times: Sequence[Sequence[float]]) -> Curve:
    """Fit the curve through all samples of each size, in ns. Two sizes give a line of unknown accuracy, three a wide
    interval. Raise `UnknownCost` for a single size, because it says nothing about another.

    >>> curve = fit_curve([1000, 2000, 4000, 8000, 16000], [[6000.0], [7010.0], [8990.0], [13000.0], [21010.0]])
    >>> round(curve.pieces[0].alpha.value), round(curve.pieces[0].beta.value, 2)
    (5002, 1.0)
    """
    points = _points(sizes, times)
    if len(points.size) < 2:
        found = "only one size was" if len(points.size) else "nothing was"
        raise UnknownCost(f"no curve can be fitted: {found} measured; measure at least three sizes")
    sigma = np.maximum(points.scatter, max(_QUIET, _noise(points)))
    edges = _edges(points, sigma)
    pieces = _CostLines.through(points, sigma, edges[:-1], edges[1:])
    return Curve(tuple(_pieces(points, sigma, pieces)), tuple(_apart(points, pieces)))


@dataclass(frozen=True, slots=True)
class _CostPoints:
    """Measured sizes in order."""

    size: Floats
    time: Floats
    """Median of each size, in ns."""
    scatter: Floats
    """Relative standard error of the median, as its samples show it."""


def _points(sizes: Sequence[int], times: Sequence[Sequence[float]]) -> _CostPoints:
    samples: dict[int, list[float]] = {}
    for size, measured in zip(sizes, times, strict=True):
        if kept := [ns for ns in measured if ns > 0]:
            samples.setdefault(size, []).extend(kept)
    ordered = [(size, np.array(samples[size], dtype=np.float64)) for size in sorted(samples) if size > 0]
    medians = np.array([np.median(kept) for _, kept in ordered])
    own = np.array([_median_error(kept) for _, kept in ordered])
    many = np.array([len(kept) >= _MANY for _, kept in ordered], dtype=np.bool_)
    scatter = np.maximum(_around(own), np.where(many, own, 0.0)) if ordered else own
    return _CostPoints(np.array([size for size, _ in ordered], dtype=np.float64), medians, scatter)


def _median_error(samples: Floats) -> float:
    """Return the relative standard error of the median of some samples: from their median deviation, so that outliers
    do not count."""
    count = len(samples)
    if count < 2:
        return 0.0
    middle = np.median(samples)
    deviation = 1.4826 * np.median(np.abs(samples - middle)) * _FEW.get(count, count / (count - 0.8))
    return float(1.2533 * deviation / middle / sqrt(count))


def _noise(points: _CostPoints) -> float:
    """Return one sigma of a size, relative, from how far each size is from the line between its neighbours; a few bends
    or outliers do not change the median of that."""
    x, y = points.size, points.time
    if len(x) < 3:
        return 0.0
    part = (x[1:-1] - x[:-2]) / (x[2:] - x[:-2])
    before, after = (1 - part) * y[:-2], part * y[2:]
    line = before + after
    scale = np.sqrt(line**2 + before**2 + after**2)
    return float(1.4826 * np.median(np.abs(y[1:-1] - line) / scale))


def _around(values: Floats) -> Floats:
    """Return the median of the values around each value."""
    wide = min(_NEAR, len(values))
    first = np.clip(np.arange(len(values)) - wide // 2, 0, len(values) - wide)
    return np.asarray(np.median(values[first[:, None] + np.arange(wide)], axis=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class _CostLines:
    """Robust lines through many stretches of sizes at once, one row each."""

    start: Ints
    stop: Ints
    alpha: Floats
    beta: Floats
    kept: Bools
    costs: Floats
    """Squared residuals in units of sigma, by size; a size that was not kept counts as if it were at the limit."""

    @classmethod
    def through(cls, points: _CostPoints, sigma: Floats, start: Ints, stop: Ints) -> _CostLines:
        x, y = points.size, points.time
        place = np.arange(len(x))
        inside = (place >= start[:, None]) & (place < stop[:, None])
        limit = np.maximum(4.0, FAR / sigma)
        first = start == 0
        weight = inside / (y * sigma) ** 2
        alpha, beta = _solve(x, y, weight, first)
        for turn in range(_TURNS):
            line = alpha[:, None] + beta[:, None] * x
            scale = np.maximum(line, y / 4) * sigma
            away = np.abs(y - line) / scale
            trust = 1 / np.maximum(away, 0.5) if turn < _TURNS // 2 else (away <= limit)
            alpha, beta = _solve(x, y, inside * trust / scale**2, first)
        line = alpha[:, None] + beta[:, None] * x
        away = np.abs(y - line) / (np.maximum(line, y / 4) * sigma)
        costs = np.where(inside, np.minimum(away, limit) ** 2, 0.0)
        return cls(start=start, stop=stop, alpha=alpha, beta=beta, kept=inside & (away <= limit), costs=costs)

    def predict(self, x: Floats) -> Floats:
        """Return the time of each size by its own line; the lines follow each other."""
        return np.concatenate(
            [a + b * x[i:j] for i, j, a, b in zip(self.start, self.stop, self.alpha, self.beta, strict=True)]
        )


def _solve(x: Floats, y: Floats, weight: Floats, first: Bools) -> tuple[Floats, Floats]:
    """Solve weighted least squares by row. Time does not fall with size, and no latency is negative."""
    total = np.maximum(weight.sum(axis=1), 1e-300)
    centre, mean = (weight @ x) / total, (weight @ y) / total
    offset = x - centre[:, None]
    spread = np.sum(weight * offset**2, axis=1)
    beta = np.sum(weight * offset * y, axis=1) / np.where(spread > 0, spread, inf)
    beta = np.maximum(beta, 0.0)
    alpha = mean - beta * centre
    clipped = first & (alpha < 0)
    through_zero = (weight @ (x * y)) / np.maximum(weight @ (x * x), 1e-300)
    return np.where(clipped, 0.0, alpha), np.where(clipped, through_zero, beta)


def _edges(points: _CostPoints, sigma: Floats) -> Ints:
    """Return where pieces begin, and the end: the fewest pieces that explain the times."""
    count = len(points.size)
    if count < 2 * FEWEST_SIZES:
        return np.array([0, count])
    places = np.unique(np.linspace(0, count, min(count, _MOST_EDGES) + 1).round().astype(np.int64))
    first, second = np.triu_indices(len(places), 1)
    long = places[second] - places[first] >= FEWEST_SIZES
    lines = _CostLines.through(points, sigma, places[first[long]], places[second[long]])
    costs = np.full((len(places), len(places)), inf)
    costs[first[long], second[long]] = lines.costs.sum(axis=1)
    found = [_Split.of(points, sigma, places[list(edges)]) for edges in _partitions(costs)]
    taken = found[0]
    for split in found[1:]:
        strays = _strays(points, taken.predicted)
        is_bend = strays >= FEWEST_SIZES and _strays(points, split.predicted) < strays
        if is_bend or split.beats(taken, len(places)):
            taken = split
    return taken.edges


def _strays(points: _CostPoints, predicted: Floats) -> int:
    """Return the length of the longest row of neighbours that a curve misses on the same side, by far more than their
    own samples scatter. One or two were disturbed; three are a bend, however noisy other sizes are."""
    away = points.time / np.maximum(predicted, 1e-9) - 1
    is_stray = (points.scatter > 0) & (np.abs(away) > np.maximum(STRAY, 4 * points.scatter))
    side = np.where(is_stray, np.sign(away), 0)
    rows = [len(list(row)) for way, row in groupby(side.tolist()) if way]
    return max(rows, default=0)


def _partitions(costs: Floats) -> Iterator[tuple[int, ...]]:
    """Yield the cheapest edges for one piece, two, three, ..."""
    last = len(costs) - 1
    best, ways = costs[0], [(0, place) for place in range(last + 1)]
    yield ways[last]
    for _ in range(MOST_PIECES - 1):
        through = best[:, None] + costs
        before = np.argmin(through, axis=0)
        best = through[before, np.arange(last + 1)]
        ways = [(*ways[middle], place) for place, middle in enumerate(before.tolist())]
        if best[last] == inf:
            return
        yield ways[last]


@dataclass(frozen=True, slots=True)
class _Split:
    """A way to cut the sizes into pieces, and how well it explains them."""

    edges: Ints
    predicted: Floats
    cost: Floats
    """Cost of each size."""
    kept: Bools

    @classmethod
    def of(cls, points: _CostPoints, sigma: Floats, edges: Ints) -> _Split:
        lines = _CostLines.through(points, sigma, edges[:-1], edges[1:])
        return cls(edges, lines.predict(points.size), lines.costs.sum(axis=0), np.any(lines.kept, axis=0))

    @property
    def pieces(self) -> int:
        return len(self.edges) - 1

    def beats(self, other: _Split, places: int) -> bool:
        """Return whether it is better than a split of fewer pieces by more than chance gives, and visibly. If a piece
        scatters more than all together, its gain is measured by its own scatter: some sizes are noisier than others."""
        more, freedom = self.pieces - other.pieces, int(self.kept.sum()) - 2 * self.pieces
        if freedom < 1 or np.max(np.abs(self.predicted / np.maximum(other.predicted, 1e-9) - 1)) < VISIBLE:
            return False
        usual = max(float(self.cost[self.kept].sum()) / freedom, 1e-9)
        gain = 0.0
        for start, stop in pairwise(self.edges.tolist()):
            own = self.cost[start:stop][self.kept[start:stop]]
            noise = max(usual, float(own.sum()) / max(len(own) - 2, 1))
            gain += float(np.sum(other.cost[start:stop] - self.cost[start:stop])) / noise
        searched = comb(places, more) * (MOST_PIECES - 1)
        return f_tail(gain / (3 * more), 3 * more, freedom) * searched < CHANCE


def _pieces(points: _CostPoints, sigma: Floats, lines: _CostLines) -> Iterator[CurvePiece]:
    """Yield each line with its intervals. How much larger than sigma the residuals are is estimated from all pieces
    together, or from this one if its own residuals or samples scatter more: few sizes rarely show how far they can be
    off."""
    excess = (points.time / np.maximum(lines.predict(points.size), 1.0) - 1) / sigma
    kept = lines.kept.any(axis=0)
    freedom = int(kept.sum()) - 2 * len(lines.start)
    quantile = t_quantile(CONFIDENCE, freedom)
    pooled = _root_mean(excess[kept], freedom) if freedom > 0 else inf
    for row, (start, stop) in enumerate(zip(lines.start.tolist(), lines.stop.tolist(), strict=True)):
        inside = lines.kept[row]
        own_freedom = int(inside.sum()) - 2
        own = _root_mean(excess[inside], own_freedom) if own_freedom > 0 else 0.0
        within = _root_mean(points.scatter[inside] / sigma[inside], int(inside.sum()))
        error = max(pooled, own, within) * sigma[inside]
        spread = max(_root_mean(error, len(error)), _FINEST)
        alpha, beta = float(lines.alpha[row]), float(lines.beta[row])
        shape = _shape(points.size[inside], alpha, beta, quantile * np.maximum(error, _FINEST))
        wide, steep = sqrt(shape[0]), sqrt(shape[1])
        yield CurvePiece(
            first=int(points.size[start]),
            last=int(points.size[stop - 1]),
            alpha=Constant(alpha, max(0.0, alpha - wide) if start == 0 else alpha - wide, alpha + wide),
            beta=Constant(beta, max(0.0, beta - steep), beta + steep),
            spread=spread if spread < inf else 0.0,
            margin=quantile * spread,
            shape=shape,
        )


def _apart(points: _CostPoints, lines: _CostLines) -> Iterator[Apart]:
    """Yield the sizes that no line was fitted to."""
    sizes = [0.0, *points.size.tolist(), inf]
    ratios = points.time / np.maximum(lines.predict(points.size), 1e-9)
    for place in np.flatnonzero(~lines.kept.any(axis=0)).tolist():
        yield Apart(sizes[place], sizes[place + 2], float(ratios[place]))


def _root_mean(values: Floats, freedom: int) -> float:
    return sqrt(float(np.sum(values**2)) / freedom) if freedom else 0.0


def _shape(sizes: Floats, alpha: float, beta: float, margins: Floats) -> tuple[float, float, float]:
    """Return the squared half widths of alpha and beta if each size is off by its margin, and their covariance."""
    if len(sizes) < 2 or not np.all(np.isfinite(margins)):
        return inf, inf, -inf
    weight = 1 / (np.maximum(alpha + beta * sizes, 1e-9) * margins) ** 2
    total = float(weight.sum())
    centre = float(weight @ sizes) / total
    turn = 1 / float(weight @ (sizes - centre) ** 2)
    return 1 / total + turn * centre**2, turn, -turn * centre
