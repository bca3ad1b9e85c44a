"""Price a fix by a what-if, without keeping its graph: many are asked for, and graphs are large."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lostflops.predict.answers import predictions

if TYPE_CHECKING:
    from lostflops.predict.answers.answer import Answer
    from lostflops.predict.answers.predictions import StoredPrediction
    from lostflops.store.run import Run


@dataclass(frozen=True, slots=True)
class Price:
    """Shares of the measured step, for the same work, with the 90% interval that every verb shows."""

    gain: float
    low: float
    high: float
    prediction: StoredPrediction

    @property
    def doubt(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2


def price(run: Run, found: Answer) -> Price:
    low, high = found.saving_interval
    return Price(found.saving, low, high, predictions.made(run, found))
