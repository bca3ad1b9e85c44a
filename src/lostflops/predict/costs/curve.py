"""Time over size as straight pieces: T(S) = alpha + beta S, each with intervals.

A `Curve` is what a fit found. It knows neither how it was fitted nor which collective it belongs to.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Constant:
    """A fitted figure and its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Piece:
    """A line between two measured sizes, in bytes. alpha is in ns and, in a piece that does not begin at the smallest
    size, an intercept that may be negative; beta is in ns per byte. `spread` is the relative deviation of what was
    measured from the line, one sigma."""

    first: int
    last: int
    alpha: Constant
    beta: Constant
    spread: float

    def at(self, size: float) -> float:
        return self.alpha.value + self.beta.value * size


@dataclass(frozen=True, slots=True)
class Curve:
    """Pieces in the order of sizes; each holds from its `first` up to the next one's."""

    pieces: tuple[Piece, ...]

    def piece(self, size: int) -> Piece:
        found = self.pieces[0]
        for piece in self.pieces:
            if piece.first <= size:
                found = piece
        return found

    def at(self, size: int) -> float:
        return self.piece(size).at(size)

    @property
    def sizes(self) -> tuple[int, int]:
        """The smallest and the largest that were measured."""
        return self.pieces[0].first, self.pieces[-1].last
