"""How often findings were right, and how far savings were off, on recorded jobs whose causes are known.

`calibration.json` is written by `python -m clinic --calibrate` from the outcomes of the clinic; nothing in it is typed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import exp, log, pi, sqrt
from pathlib import Path
from typing import Final

import msgspec

from lostflops.core.estimate import Estimate, Kind, Strength

FILE: Final = Path(__file__).with_name("calibration.json")
LEAST: Final = 0.01
"""Smaller savings are as likely to be right as this one: the smallest that the outcomes contain."""


class Reach(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far a measured saving is from an estimate in nine of ten jobs, in units of `scale`; of a bound, how far it is
    above in one of twenty."""

    jobs: int
    """Jobs that it was counted on."""
    floor: float
    slope: float
    below: float
    above: float

    def __post_init__(self) -> None:
        if self.jobs < 1 or min(self.floor, self.slope, self.below, self.above) < 0:
            raise ValueError("a reach is negative or was counted on no job")

    def scale(self, value: float, half: float) -> float:
        """Return the unit on one side of an estimate: half the width of its range there, and what no range knows."""
        return half + self.floor + self.slope * abs(value)

    def apply(self, saving: Estimate, factor: float = 1.0) -> Estimate:
        """Return the saving with the range that this reach gives, for a rule that is off by `factor` times as much as
        others. Whether it is above zero is for the run to say: that stays as it is."""
        value, low, high = saving.value, saving.low, saving.high
        if low is None or high is None:
            return saving
        if saving.kind is Kind.BOUND:
            return Estimate.bound(value + self.above * self.scale(value, 0.0), saving.source)
        upper = min(value + factor * self.above * self.scale(value, high - value), 1.0)
        lower = value - factor * self.below * self.scale(value, value - low)
        return replace(saving, low=max(lower, min(low, LEAST)) if low > 0 else min(lower, 0.0), high=upper)


class Odds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Log odds that a finding is right: the sum of these, by its evidence and its saving."""

    intercept: float
    strength: dict[Strength, float]
    size: float
    """By the logarithm of the saving."""
    rules: dict[str, float]
    """How rules differ from all rules together; a rule with few outcomes is drawn towards all."""
    spread: float
    """By how much rules differ, as a standard deviation."""

    def __post_init__(self) -> None:
        if set(self.strength) != set(Strength):
            raise ValueError("a strength of evidence is missing")

    def probability(self, cause: str, strength: Strength, value: float) -> float:
        """Return how often such a finding is right, for a rule without outcomes on average over what rules may be."""
        odds = self.intercept + self.strength[strength] + self.size * log_size(value)
        if cause in self.rules:
            return 1 / (1 + exp(-odds - self.rules[cause]))
        return 1 / (1 + exp(-odds / sqrt(1 + pi * self.spread**2 / 8)))


class OutcomeCalibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    outcomes: str
    """Digest of the outcomes that it was computed from."""
    coverage: float
    """Share of measured savings that ranges contain."""
    ranges: dict[Kind, Reach]
    factors: dict[str, float]
    """By rule, how far off its savings are, compared with all rules; 1 for a rule without outcomes."""
    odds: Odds

    def __post_init__(self) -> None:
        if not 0 < self.coverage < 1:
            raise ValueError("coverage is not a share")


def log_size(value: float) -> float:
    return log(max(value, LEAST))


@cache
def read_calibration(file: Path = FILE) -> OutcomeCalibration:
    try:
        return msgspec.json.decode(file.read_bytes(), type=OutcomeCalibration)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{file} is not a calibration: {error}. Write it with: python -m clinic --calibrate") from None


def calibrated(saving: Estimate, cause: str) -> Estimate:
    """Return the saving with a range that contains the measured saving in nine of ten jobs, if its kind was counted."""
    known = read_calibration()
    reach = known.ranges.get(saving.kind)
    return saving if reach is None else reach.apply(saving, known.factors.get(cause, 1.0))


def probability_right(cause: str, strength: Strength, saving: Estimate | None) -> float | None:
    """Return how often a finding with this evidence was right; one that costs no time yet has no saving. A rule with
    few outcomes is judged by all rules; None for a rule without any."""
    odds = read_calibration().odds
    return odds.probability(cause, strength, saving.value if saving else 0.0) if cause in odds.rules else None
