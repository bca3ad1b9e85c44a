"""Straight pieces through measured times: T(S) = alpha + beta S, as few as the data justify.

Each size counts once, by the median of its samples, and what counts is the relative error, so that 1 KB weighs as much
as 1 GB. A size that lies far from its piece (`FAR`, or four sigma) was disturbed: it does not bend the line. One piece
more is taken only if chance would not give its gain at any of the places where it could begin (`CHANCE`), and if the
times that it predicts differ visibly (`VISIBLE`). docs/explanation/calibration.md tells the reasons.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import comb, inf, sqrt
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.errors import UnknownCost
from lostflops.predict.costs.curve import Constant, Curve, Piece
from lostflops.predict.costs.quantiles import f_tail, t_quantile

CONFIDENCE: Final = 0.99
CHANCE: Final = 0.01
VISIBLE: Final = 0.05
FAR: Final = 0.25
MOST_PIECES: Final = 6
FEWEST_SIZES: Final = 3
_MOST_EDGES: Final = 40
_QUIET: Final = 0.01
"""Sizes that lie closer to a line than this are not told apart from it when pieces are looked for."""
_FINEST: Final = 0.001
"""No line is known better than this, however well a few sizes happen to lie on it."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def fit(sizes: Sequence[int], times: Sequence[Sequence[float]]) -> Curve:
    """The curve through all samples of each size, in ns. Two sizes give a line of unknown accuracy, three a wide
    interval; one tells nothing about another size, so that `UnknownCost` is raised.

    >>> curve = fit([1000, 2000, 4000, 8000, 16000], [[6000.0], [7010.0], [8990.0], [13000.0], [21010.0]])
    >>> round(curve.pieces[0].alpha.value), round(curve.pieces[0].beta.value, 2)
    (5002, 1.0)
    """
    points = _points(sizes, times)
    if len(points.size) < 2:
        found = "one size was" if len(points.size) else "nothing was"
        raise UnknownCost(f"no curve can be fitted: {found} measured; measure at least three sizes")
    sigma = np.maximum(points.scatter, max(_QUIET, _noise(points)))
    edges = _edges(points, sigma)
    pieces = _Lines.through(points, sigma, edges[:-1], edges[1:])
    return Curve(tuple(_pieces(points, pieces)))


@dataclass(frozen=True, slots=True)
class _Points:
    """Sizes in order, with the median of each and its standard error as its samples tell it, relative."""

    size: Floats
    time: Floats
    scatter: Floats


def _points(sizes: Sequence[int], times: Sequence[Sequence[float]]) -> _Points:
    samples: dict[int, list[float]] = {}
    for size, measured in zip(sizes, times, strict=True):
        if kept := [ns for ns in measured if ns > 0]:
            samples.setdefault(size, []).extend(kept)
    ordered = [(size, np.array(samples[size], dtype=np.float64)) for size in sorted(samples) if size > 0]
    medians = np.array([np.median(kept) for _, kept in ordered])
    scatter = np.array([_median_error(kept) for _, kept in ordered])
    return _Points(np.array([size for size, _ in ordered], dtype=np.float64), medians, scatter)


def _median_error(samples: Floats) -> float:
    """Of the median of some samples, relative: from their median deviation, so that outliers do not count."""
    if len(samples) < 4:
        return 0.0
    middle = np.median(samples)
    return float(1.4826 * 1.2533 * np.median(np.abs(samples - middle)) / middle / sqrt(len(samples)))


def _noise(points: _Points) -> float:
    """One sigma of a size, relative, from how far each lies from the line between its neighbours; a few bends or
    outliers do not change the median of that."""
    x, y = points.size, points.time
    if len(x) < 3:
        return 0.0
    part = (x[1:-1] - x[:-2]) / (x[2:] - x[:-2])
    before, after = (1 - part) * y[:-2], part * y[2:]
    line = before + after
    scale = np.sqrt(line**2 + before**2 + after**2)
    return float(1.4826 * np.median(np.abs(y[1:-1] - line) / scale))


@dataclass(frozen=True, slots=True)
class _Lines:
    """Robust lines through many stretches of sizes at once, a row each."""

    start: Ints
    stop: Ints
    alpha: Floats
    beta: Floats
    kept: Bools
    cost: Floats
    """Squared residuals in units of sigma; one that was not kept counts as if it lay at the limit."""
    scatter: Floats
    """The same of those that were kept."""

    @classmethod
    def through(cls, points: _Points, sigma: Floats, start: Ints, stop: Ints) -> _Lines:
        x, y = points.size, points.time
        place = np.arange(len(x))
        inside = (place >= start[:, None]) & (place < stop[:, None])
        limit = np.maximum(4.0, FAR / sigma)
        first = start == 0
        weight = inside / (y * sigma) ** 2
        alpha, beta = _solve(x, y, weight, first)
        for turn in range(24):
            line = alpha[:, None] + beta[:, None] * x
            scale = np.maximum(line, y / 4) * sigma
            away = np.abs(y - line) / scale
            trust = 1 / np.maximum(away, 0.5) if turn < 12 else (away <= limit)
            alpha, beta = _solve(x, y, inside * trust / scale**2, first)
        line = alpha[:, None] + beta[:, None] * x
        away = np.abs(y - line) / (np.maximum(line, y / 4) * sigma)
        kept = inside & (away <= limit)
        cost = np.sum(np.where(inside, np.minimum(away, limit) ** 2, 0.0), axis=1)
        return cls(start, stop, alpha, beta, kept, cost, np.sum(np.where(kept, away**2, 0.0), axis=1))

    def predicted(self, x: Floats) -> Floats:
        """Of lines that follow each other: each size by its own."""
        return np.concatenate(
            [a + b * x[i:j] for i, j, a, b in zip(self.start, self.stop, self.alpha, self.beta, strict=True)]
        )


def _solve(x: Floats, y: Floats, weight: Floats, first: Bools) -> tuple[Floats, Floats]:
    """Weighted least squares by row. Time does not fall with size, and no latency is negative."""
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


def _edges(points: _Points, sigma: Floats) -> Ints:
    """Where pieces begin, and the end: the fewest that explain the times."""
    count = len(points.size)
    if count < 2 * FEWEST_SIZES:
        return np.array([0, count])
    places = np.unique(np.linspace(0, count, min(count, _MOST_EDGES) + 1).round().astype(np.int64))
    first, second = np.triu_indices(len(places), 1)
    long = places[second] - places[first] >= FEWEST_SIZES
    lines = _Lines.through(points, sigma, places[first[long]], places[second[long]])
    costs = np.full((len(places), len(places)), inf)
    costs[first[long], second[long]] = lines.cost
    found = [_Split.of(points, sigma, places[list(edges)]) for edges in _partitions(costs)]
    taken = found[0]
    for split in found[1:]:
        if split.beats(taken, len(places)):
            taken = split
    return taken.edges


def _partitions(costs: Floats) -> Iterator[tuple[int, ...]]:
    """The cheapest edges for one piece, two, three, ..."""
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
    cost: float
    scatter: float
    """The cost of those sizes that were kept."""
    kept: int
    predicted: Floats

    @classmethod
    def of(cls, points: _Points, sigma: Floats, edges: Ints) -> _Split:
        lines = _Lines.through(points, sigma, edges[:-1], edges[1:])
        kept = int(lines.kept.sum())
        return cls(edges, float(lines.cost.sum()), float(lines.scatter.sum()), kept, lines.predicted(points.size))

    @property
    def pieces(self) -> int:
        return len(self.edges) - 1

    def beats(self, other: _Split, places: int) -> bool:
        """Whether it is better than one of fewer pieces by more than chance gives, and visibly."""
        more, freedom = self.pieces - other.pieces, self.kept - 2 * self.pieces
        gain = other.cost - self.cost
        if freedom < 1 or gain <= 0:
            return False
        ratio = (gain / (3 * more)) / max(self.scatter / freedom, 1e-9)
        apart = np.max(np.abs(self.predicted / np.maximum(other.predicted, 1e-9) - 1))
        searched = comb(places, more) * (MOST_PIECES - 1)
        return apart >= VISIBLE and f_tail(ratio, 3 * more, freedom) * searched < CHANCE


def _pieces(points: _Points, lines: _Lines) -> Iterator[Piece]:
    """Each line with its intervals. The scatter is that of all pieces together, or of this one where its own residuals
    or samples say more: few sizes rarely show how far they can be off."""
    residual = points.time / lines.predicted(points.size) - 1
    kept = lines.kept.any(axis=0)
    freedom = int(kept.sum()) - 2 * len(lines.start)
    pooled = sqrt(float(np.sum(residual[kept] ** 2)) / freedom) if freedom > 0 else inf
    quantile = t_quantile(CONFIDENCE, freedom)
    for row, (start, stop) in enumerate(zip(lines.start.tolist(), lines.stop.tolist(), strict=True)):
        inside = lines.kept[row]
        own_freedom = int(inside.sum()) - 2
        own = sqrt(float(np.sum(residual[inside] ** 2)) / own_freedom) if own_freedom > 0 else 0.0
        within = sqrt(float(np.mean(points.scatter[inside] ** 2))) if inside.any() else 0.0
        spread = max(pooled, own, within, _FINEST)
        alpha, beta = float(lines.alpha[row]), float(lines.beta[row])
        shape = _shape(points.size[inside], alpha, beta, quantile * spread)
        wide, steep = sqrt(shape[0]), sqrt(shape[1])
        yield Piece(
            first=int(points.size[start]),
            last=int(points.size[stop - 1]),
            alpha=Constant(alpha, max(0.0, alpha - wide) if start == 0 else alpha - wide, alpha + wide),
            beta=Constant(beta, max(0.0, beta - steep), beta + steep),
            spread=spread if spread < inf else 0.0,
            margin=quantile * spread,
            shape=shape,
        )


def _shape(sizes: Floats, alpha: float, beta: float, margin: float) -> tuple[float, float, float]:
    """Squared half widths of alpha and beta where each size is off by `margin`, and what they have in common."""
    if margin == inf or len(sizes) < 2:
        return inf, inf, -inf
    weight = 1 / np.maximum(alpha + beta * sizes, 1e-9) ** 2
    total = float(weight.sum())
    centre = float(weight @ sizes) / total
    turn = margin**2 / float(weight @ (sizes - centre) ** 2)
    return margin**2 / total + turn * centre**2, turn, -turn * centre
