"""What a diagnosis reads of the outcomes: ranges and probabilities, and only from a file that is whole."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from clinic.calibrate import calibrate, written
from clinic.outcomes import OUTCOMES, read_rows

from lostflops.core.estimate import Estimate, Kind, Strength
from lostflops.explain.advise.calibration import (
    FILE,
    Odds,
    Reach,
    calibrated,
    probability_right,
    read_calibration,
)
from lostflops.explain.advise.rules import RULES

MEASURED = Estimate(0.2, 0.18, 0.24, Kind.MEASURED, "steps")
STRENGTHS = ("weak", "fair", "strong")
REACH = {"jobs": 3, "floor": 0.1, "slope": 0, "below": 1, "above": 1}
ODDS = Odds(1.0, dict.fromkeys(Strength, 0.0), 0.0, {"known": 2.0}, 1.0)


def test_every_number_comes_from_the_outcomes() -> None:
    rows = read_rows(OUTCOMES.read_text(encoding="utf-8"))
    assert FILE.read_bytes() == written(calibrate(rows))


def test_a_range_reaches_as_far_as_savings_were_off() -> None:
    reach = Reach(jobs=20, floor=0.01, slope=0.1, below=1.0, above=2.0)
    wide = reach.apply(MEASURED)
    assert (wide.value, wide.kind, wide.source) == (0.2, Kind.MEASURED, "steps")
    assert wide.low == pytest.approx(0.2 - (0.02 + 0.01 + 0.02))
    assert wide.high == pytest.approx(0.2 + 2 * (0.04 + 0.01 + 0.02))
    assert reach.apply(Estimate(0.95, 0.9, 0.98, Kind.REPLAYED, "")).high == 1
    assert reach.apply(MEASURED, 2.0).high == pytest.approx(0.2 + 4 * (0.04 + 0.01 + 0.02))
    assert reach.apply(Estimate.bound(0.2, "")) == Estimate.bound(0.2 + 2 * 0.03, "")
    guess = Estimate(0.2, None, None, Kind.GUESS, "")
    assert reach.apply(guess) == guess == calibrated(guess, "gc")


def test_a_saving_that_was_seen_stays_above_zero() -> None:
    reach = Reach(jobs=20, floor=0.3, slope=0.0, below=1.0, above=1.0)
    assert reach.apply(MEASURED).low == pytest.approx(0.01)
    assert reach.apply(replace(MEASURED, low=0.005)).low == pytest.approx(0.005)
    assert reach.apply(replace(MEASURED, low=-0.01)).low == pytest.approx(0.2 - 0.51)
    near = Reach(jobs=20, floor=0.0, slope=0.0, below=0.1, above=0.1)
    assert near.apply(replace(MEASURED, low=-0.01)).low == 0


def test_a_rule_without_outcomes_is_less_sure() -> None:
    known = ODDS.probability("known", Strength.STRONG, 0.2)
    unknown = ODDS.probability("unknown", Strength.STRONG, 0.2)
    assert known > 0.94
    assert 0.5 < unknown < 1 / (1 + 2.718**-1)


def test_stronger_evidence_is_not_less_often_right() -> None:
    for cause in read_calibration().odds.rules:
        weak, fair, strong = (probability_right(cause, Strength(name), MEASURED) or 0.0 for name in STRENGTHS)
        assert weak <= strong
        assert fair <= strong


def test_a_rule_without_outcomes_has_no_probability() -> None:
    unscored = {rule.cause for rule in RULES} - read_calibration().odds.rules.keys()
    assert all(probability_right(cause, Strength.STRONG, MEASURED) is None for cause in ("new", *unscored))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"coverage": 1.5}, "coverage is not a share"),
        (
            {"ranges": {"measured": {"jobs": 3, "floor": 0.1, "slope": 0, "below": -1, "above": 1}}},
            "a reach is negative",
        ),
        ({"ranges": {"certain": {"jobs": 3, "floor": 0.1, "slope": 0, "below": 1, "above": 1}}}, "certain"),
        ({"more": 1}, "unknown field"),
        ({"odds": None}, "odds"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, change: dict, says: str) -> None:
    file = tmp_path / "calibration.json"
    file.write_text(json.dumps({**json.loads(FILE.read_text()), **change}))
    with pytest.raises(ValueError, match="is not a calibration") as refused:
        read_calibration(file)
    assert says in str(refused.value)
    assert "python -m clinic --calibrate" in str(refused.value)


def test_odds_without_a_strength_are_refused(tmp_path: Path) -> None:
    told = json.loads(FILE.read_text())
    del told["odds"]["strength"]["weak"]
    file = tmp_path / "calibration.json"
    file.write_text(json.dumps(told))
    with pytest.raises(ValueError, match="a strength of evidence"):
        read_calibration(file)
