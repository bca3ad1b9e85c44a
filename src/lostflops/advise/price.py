"""What a what-if says of the step, without its graph: many are asked for, and graphs are large."""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot
from typing import TYPE_CHECKING

from lostflops.predict.answers import predictions

if TYPE_CHECKING:
    from lostflops.predict.answers.answer import Answer
    from lostflops.predict.answers.predictions import StoredPrediction
    from lostflops.store.run import Run


@dataclass(frozen=True, slots=True)
class Price:
    """Shares are of the measured step, for the same work. `doubt` is by how much the gain may be off in this very run:
    what other runs of the job differ by is not in it, but in `low` and `high`. `doubt_in_each` leaves out how the steps
    differ, for what is there in each of them."""

    gain: float
    low: float
    high: float
    doubt: float
    doubt_in_each: float
    prediction: StoredPrediction


def price(run: Run, found: Answer) -> Price:
    whole = found.baseline.measured * found.work
    off = found.doubts
    return Price(
        gain=1 - found.predicted / whole,
        low=1 - found.high / whole,
        high=1 - found.low / whole,
        doubt=hypot(off.replay, off.changes, off.steps) / whole,
        doubt_in_each=hypot(off.replay, off.changes) / whole,
        prediction=predictions.made(run, found),
    )
