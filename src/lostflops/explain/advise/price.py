"""Price of a fix, from a what-if whose graph is not kept: a diagnosis needs many, and graphs are large."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lostflops.predict.whatif import predictions

if TYPE_CHECKING:
    from lostflops.predict.whatif.answer import WhatIfAnswer
    from lostflops.predict.whatif.predictions import StoredPrediction
    from lostflops.store.run import Run


@dataclass(frozen=True, slots=True)
class Price:
    """Saving of a what-if, as a share of the measured step for the same work, with the 90% interval that every verb
    shows."""

    gain: float
    low: float
    high: float
    prediction: StoredPrediction

    @property
    def doubt(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2


def price(run: Run, found: WhatIfAnswer) -> Price:
    low, high = found.saving_interval
    return Price(found.saving, low, high, predictions.make_prediction(run, found))
