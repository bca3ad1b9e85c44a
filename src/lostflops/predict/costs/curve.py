"""Time as a function of size, in straight pieces: T(S) = alpha + beta S, each with intervals.

A `Curve` is the result of a fit. It knows neither how it was fitted nor which collective it belongs to.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite, log2, sqrt
from typing import Final, NamedTuple

BEYOND: Final = 0.1
"""Part of the time by which the interval grows on each side with every doubling beyond the measured sizes."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A fitted figure and its interval."""

    value: float
    low: float
    high: float


class Predicted(NamedTuple):
    """A time in ns with its interval."""

    ns: float
    low: float
    high: float
    reach: str
    """How far it is beyond the measured sizes; empty inside them."""


@dataclass(frozen=True, slots=True)
class CurvePiece:
    """A line between two measured sizes, in bytes."""

    first: int
    last: int
    alpha: Constant
    """In ns; in a piece that does not begin at the smallest size, an intercept that may be negative."""
    beta: Constant
    """In ns per byte."""
    spread: float
    """Relative deviation of the measurements from the line, one sigma."""
    margin: float = inf
    """The same at the confidence of the intervals."""
    shape: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Squared half widths of alpha and beta, and their covariance."""

    def at(self, size: float) -> float:
        return self.alpha.value + self.beta.value * size

    def half_width(self, size: float) -> float:
        """Return half the width of the interval around the line, for the median of a new measurement of that size."""
        alpha, beta, both = self.shape
        if not isfinite(self.margin + alpha):
            return inf
        line = max(0.0, alpha + size * (2 * both + size * beta))
        return sqrt(line + (self.margin * self.at(size)) ** 2)


class Apart(NamedTuple):
    """A size whose time does not fit its piece: it may have been disturbed, or show a bend that too few sizes
    confirm."""

    after: float
    """The size measured before it, 0 if it is the first."""
    before: float
    """The size measured after it, infinite if it is the last."""
    ratio: float
    """Measured time over the time by the piece."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Pieces in the order of sizes; each is valid from its `first` up to the next one's."""

    pieces: tuple[CurvePiece, ...]
    apart: tuple[Apart, ...] = ()

    def piece(self, size: int) -> CurvePiece:
        found = self.pieces[0]
        for piece in self.pieces:
            if piece.first <= size:
                found = piece
        return found

    def at(self, size: int) -> float:
        return max(0.0, self.piece(size).at(size))

    @property
    def sizes(self) -> tuple[int, int]:
        """Smallest and largest size that were measured."""
        return self.pieces[0].first, self.pieces[-1].last

    def interval(self, size: int) -> Predicted:
        """Return the time with its interval. Between two pieces it includes what either says; next to a size that is
        apart it includes that as well; beyond the measured sizes it widens with the distance."""
        ns, reach = self.at(size), self.reach(size)
        widened = BEYOND * self._doublings(size) * ns
        sides = [piece.half_width(size) + widened for piece in self._near(size)]
        centres = [piece.at(size) for piece in self._near(size)]
        low = min(centre - side for centre, side in zip(centres, sides, strict=True))
        high = max(centre + side for centre, side in zip(centres, sides, strict=True))
        ratios = [one.ratio for one in self.apart if one.after < size < one.before]
        low = min(low, ns, *((ns - widened) * ratio for ratio in ratios))
        high = max(high, ns, *((ns + widened) * ratio for ratio in ratios))
        return Predicted(ns, max(0.0, low), high, reach)

    def reach(self, size: int) -> str:
        """Describe how far a size is beyond those that were measured; return an empty text inside them.

        >>> line = CurvePiece(1000, 8000, Constant(1, 0, 2), Constant(1, 0, 2), 0.01)
        >>> Curve((line,)).reach(32000), Curve((line,)).reach(250), Curve((line,)).reach(4000)
        ('4x the largest size measured', '1/4 of the smallest size measured', '')
        """
        smallest, largest = self.sizes
        if size > largest:
            return f"{size / largest:.3g}x the largest size measured"
        return f"1/{smallest / max(size, 1):.3g} of the smallest size measured" if size < smallest else ""

    def _near(self, size: int) -> tuple[CurvePiece, ...]:
        """Return the piece that is valid there, or both pieces if the size is between two."""
        for piece, following in zip(self.pieces, self.pieces[1:], strict=False):
            if piece.last < size < following.first:
                return piece, following
        return (self.piece(size),)

    def _doublings(self, size: int) -> float:
        smallest, largest = self.sizes
        return max(0.0, log2(max(size, 1) / largest), log2(smallest / max(size, 1)))
