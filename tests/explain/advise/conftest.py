"""Rules are tested on their evidence: how often such evidence is right has tests of its own."""

import pytest

from lostflops.core.estimate import Strength
from lostflops.explain.advise import findings

CHANCES = {Strength.STRONG: 0.95, Strength.FAIR: 0.7, Strength.WEAK: 0.3}


@pytest.fixture(autouse=True)
def _uncalibrated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "calibrated", lambda saving, _cause: saving)
    monkeypatch.setattr(findings, "probability_right", lambda _cause, strength, _saving: CHANCES[strength])
