"""A figure between a lower and an upper bound."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt


@dataclass(frozen=True, slots=True)
class Range:
    """A figure between two bounds that are not negative.

    >>> Range(1, 2) + Range(0, 3) * 2
    Range(low=1, high=8)
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        assert 0 <= self.low <= self.high, f"{self.low} to {self.high}"

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)

    def __mul__(self, factor: float) -> Range:
        return Range(self.low * factor, self.high * factor)

    @property
    def middle(self) -> float:
        """Geometric mean: as many times the low end as the high end is of it."""
        return sqrt(self.low * self.high)


NOTHING = Range(0, 0)


def exactly(value: float) -> Range:
    return Range(value, value)
