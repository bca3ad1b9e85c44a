"""Estimate: which share of a step a change saves, how that is known, and how sure the cause is.

What is printed says how a number was obtained. Only steps that were timed, or replayed with a change, give a range.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from lostflops.core.units import format_interval, format_percent

_OF_THE_STEP = " of the step"


class Kind(StrEnum):
    """How the value of an estimate is known."""

    MEASURED = "measured"
    """From timed steps; the range is how much they vary."""
    REPLAYED = "replayed"
    """From a what-if; the range is how uncertain the replay is and how much steps and runs vary."""
    BOUND = "bound"
    """An upper limit: the time attributed to a cause, or a what-if that no setting reaches."""
    GUESS = "guess"
    """A rule of thumb, without a range."""


class Strength(StrEnum):
    """How directly a cause is seen; the strongest is first."""

    STRONG = "strong"
    FAIR = "fair"
    WEAK = "weak"

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]


_MEANINGS = {
    Strength.STRONG: "seen directly, in most steps of the job or by an exact count",
    Strength.FAIR: "seen in a few steps only, or similar to other causes",
    Strength.WEAK: "only indirect signs",
}


@dataclass(frozen=True, slots=True)
class Estimate:
    """Share of the step that a change saves, for the same work; negative if steps get longer."""

    value: float
    low: float | None
    """Lower end of the range; None for a guess, 0 for a bound."""
    high: float | None
    """Upper end of the range; None for a guess, the value for a bound."""
    kind: Kind
    source: str
    """What it was computed from, in words."""

    def __post_init__(self) -> None:
        if self.kind == Kind.GUESS:
            assert self.low is None, f"a guess of {self.value} has a range"
            assert self.high is None, f"a guess of {self.value} has a range"
            return
        assert self.low is not None, f"{self.kind} of {self.value} has no range"
        assert self.high is not None, f"{self.kind} of {self.value} has no range"
        assert self.low <= self.value <= self.high <= 1, f"{self.value} is not from {self.low} to {self.high}"
        assert self.kind != Kind.BOUND or (self.low == 0 and self.high == self.value), "a bound has two ends"

    @classmethod
    def measured(cls, value: float, reach: float, source: str) -> Estimate:
        """Return an estimate from timed steps; `reach` is half the width of its range."""
        return cls(value, value - reach, min(value + reach, 1.0), Kind.MEASURED, source)

    @classmethod
    def bound(cls, limit: float, source: str) -> Estimate:
        limit = min(limit, 1.0)
        return cls(limit, 0.0, limit, Kind.BOUND, source)

    @property
    def ends(self) -> tuple[float, float]:
        """Ends of the range; a guess has none."""
        assert self.low is not None, "a guess has no range"
        assert self.high is not None, "a guess has no range"
        return self.low, self.high

    @property
    def is_gain(self) -> bool:
        """Whether it was found to save time: not for a guess, nor for a range that includes zero."""
        return self.low is not None and (self.low > 0 or self.kind == Kind.BOUND)

    def text(self, of: str = _OF_THE_STEP) -> str:
        """Return the saving in words, to follow "saves".

        >>> Estimate.measured(0.21, 0.05, "").text(), Estimate.measured(0.05, 0.07, "").text()
        ('21% of the step (16 to 26%)', 'at most 12% of the step, perhaps nothing')
        >>> Estimate.bound(0.08, "").text(), Estimate(0.05, None, None, Kind.GUESS, "").text()
        ('at most 8% of the step', 'roughly 5% of the step; not measured')
        """
        if self.low is None or self.high is None:
            return f"roughly {format_percent(self.value)}{of}; not measured"
        if self.kind == Kind.BOUND:
            return f"at most {format_percent(self.value)}{of}"
        if not self.is_gain:
            return f"at most {format_percent(max(self.high, 0.0))}{of}, perhaps nothing"
        return f"{format_percent(self.value)}{of} ({format_interval(self.low, self.high)})"

    def __str__(self) -> str:
        return self.text()

    def effect(self, of: str = _OF_THE_STEP) -> str:
        """Return what a change does to the step, in words: it may also cost time.

        >>> Estimate.measured(-0.05, 0.01, "").effect(), Estimate.measured(0.05, 0.07, "").effect("")
        ('costs 5% of the step (4 to 6%)', 'has no clear effect (-2% to 12%)')
        """
        if self.low is None or self.high is None or self.is_gain:
            return f"saves {self.text(of)}"
        if self.high >= 0:
            return f"has no clear effect ({format_interval(self.low, self.high)}{of})"
        return f"costs {format_percent(-self.value)}{of} ({format_interval(-self.high, -self.low)})"
