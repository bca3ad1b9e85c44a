"""How often findings were right, and savings inside their ranges, on recorded jobs with known causes.

No outcomes were counted yet: ranges stay as they are, and no probability is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lostflops.core.estimate import Estimate, Strength


def probability_right(cause: str, strength: Strength, saving: Estimate) -> float | None:  # noqa: ARG001 - no outcomes yet
    """Return how often such a finding was right; None if that was not counted."""
    return None


def calibrated(saving: Estimate) -> Estimate:
    """Return the saving with a range that includes nine of ten outcomes of its kind."""
    return saving
