"""Calibration, on populations whose probabilities and errors are known."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log

import numpy as np
import pytest
from clinic.calibrate import (
    calibration_error,
    check_odds,
    check_ranges,
    counted,
    fit_odds,
    fit_ranges,
    is_lopsided,
    measuring_share,
    probability,
)
from clinic.outcomes import Row, read_rows, standard_error, write_rows

from lostflops.core.estimate import Kind, Strength

RULES = {"often": 2.5, "usually": 1.0, "seldom": -1.5}
STRENGTHS = {Strength.STRONG: 1.0, Strength.FAIR: 0.0, Strength.WEAK: -1.0}


def row(job: str, **more: object) -> Row:
    known = {"entry": job, "is_real": True, "is_sick": True, "busy": 0, "load": 1.0, "kind": Kind.MEASURED}
    return Row(job, **{**known, "value": 0.2, "low": 0.18, "high": 0.22, "is_right": True, **more})


def true_chance(one: Row) -> float:
    odds = RULES[one.cause] + STRENGTHS[one.strength] + 0.5 * log(one.value / 0.2)
    return 1 / (1 + exp(-odds))


def findings(jobs: int, seed: int = 0) -> list[Row]:
    draw = np.random.default_rng(seed)
    rows = []
    for number in range(jobs):
        cause, strength = draw.choice(list(RULES)), draw.choice(list(STRENGTHS))
        value = float(draw.uniform(0.03, 0.6))
        one = row(f"job {number}", cause=str(cause), strength=Strength(strength), value=value, low=value, high=value)
        rows.append(replace(one, is_right=bool(draw.random() < true_chance(one))))
    return rows


def savings(jobs: int, *, error: float = 0.05, off: float = 0.0, runs: int = 1, measuring: float = 0.0) -> list[Row]:
    """Ranges of four points around estimates that miss by `error`; every job is recorded so many times."""
    draw = np.random.default_rng(jobs)
    rows = []
    for number in range(jobs):
        miss = draw.normal(off, error)
        for run in range(runs):
            value = float(draw.uniform(0.1, 0.5))
            saved = value + float(miss + draw.normal(0, measuring))
            one = row(f"job {number}", entry=f"{number}-{run}", value=value, low=value - 0.02, high=value + 0.02)
            rows.append(replace(one, measured=saved, error=measuring))
    return rows


def test_known_probabilities_are_recovered() -> None:
    odds = fit_odds(findings(3000))
    misses = [abs(probability(odds, one) - true_chance(one)) for one in findings(300, seed=1)]
    assert np.mean(misses) < 0.03
    assert max(misses) < 0.15


def test_probabilities_of_other_jobs_are_reliable() -> None:
    assert calibration_error(check_odds(findings(1500))) < 0.05


def test_a_rule_with_few_outcomes_is_judged_by_all_rules() -> None:
    common = [row(f"job {number}", cause=f"rule {number % 9}", is_right=number % 10 > 0) for number in range(300)]
    once = [*common, row("alone", cause="rare", is_right=False)]
    odds = fit_odds(once)
    assert probability(odds, row("x", cause="rule 1")) == pytest.approx(0.9, abs=0.06)
    assert 0.5 < probability(odds, row("x", cause="rare")) < probability(odds, row("x", cause="rule 1"))
    assert 0.6 < probability(odds, row("x", cause="never seen")) < 0.95


def test_probabilities_are_those_of_jobs_that_no_rule_was_corrected_on() -> None:
    tuned = [row(f"job {number}", cause="a", is_right=number % 20 > 0) for number in range(200)]
    unseen = [row(f"new {number}", cause="a", is_right=number % 10 > 2, is_unseen=True) for number in range(200)]
    assert probability(fit_odds([*tuned, *unseen]), row("x", cause="a")) == pytest.approx(0.7, abs=0.03)
    assert sum(one.weight for one in check_odds([*tuned, *unseen])) == 200


def test_wrong_findings_count_as_much_as_right_ones_of_other_jobs() -> None:
    """Half of the jobs have one right finding, the others four wrong ones."""
    rows = [row(f"job {number}", cause="a") for number in range(50)]
    rows += [row(f"job {number}", cause="a", is_right=False) for number in range(50, 100) for _ in range(4)]
    assert probability(fit_odds(rows), row("x", cause="a")) == pytest.approx(0.2, abs=0.03)


def test_a_job_that_is_recorded_often_counts_once() -> None:
    rows = [row(f"job {number}", cause="a", is_right=number % 2 > 0) for number in range(40)]
    often = [*rows, *(row("job 1", cause="a", entry=f"again {number}") for number in range(200))]
    assert probability(fit_odds(often), rows[0]) == pytest.approx(probability(fit_odds(rows), rows[0]), abs=0.05)


def test_side_effects_are_not_counted() -> None:
    assert counted([row("a"), replace(row("b"), is_right=None)]) == [row("a")]


@pytest.mark.parametrize("runs", [1, 4])
def test_ranges_contain_nine_of_ten_savings_of_other_jobs(runs: int) -> None:
    (held,) = check_ranges(savings(600, runs=runs))
    assert held.raw < 0.4
    assert 0.87 < held.inside < 0.93
    assert held.width == pytest.approx(2 * 1.645 * 0.05, rel=0.1)


def test_savings_on_one_side_make_that_side_wider() -> None:
    rows = savings(300, off=0.05)
    assert is_lopsided(rows)
    assert not is_lopsided(savings(300))
    reach = fit_ranges(rows).reaches[Kind.MEASURED]
    assert reach.above > 2 * reach.below
    (held,) = check_ranges(rows)
    assert held.inside > 0.86


def test_the_error_of_measuring_is_not_that_of_the_estimate() -> None:
    rows = savings(800, error=0.03, measuring=0.03)
    assert measuring_share(rows) == pytest.approx(0.5**0.5, rel=0.1)
    (held,) = check_ranges(rows)
    assert held.width == pytest.approx(2 * 1.645 * 0.03, rel=0.1)
    assert held.inside < 0.8
    assert held.inside_with_error > 0.87


def limits(jobs: int) -> list[Row]:
    """Limits of 20 points, which every fourth saving is up to 10 points above."""
    known = {"kind": Kind.BOUND, "value": 0.1, "low": 0.0, "high": 0.2}
    return [
        row(f"job {number}", **known, measured=0.15 if number % 4 else 0.2 + 0.1 * (number + 1) / jobs)
        for number in range(jobs)
    ]


def test_a_limit_is_raised_until_one_of_twenty_savings_is_above_it() -> None:
    (held,) = check_ranges(limits(200))
    assert held.raw == 0.75
    assert 0.92 < held.inside < 0.98
    assert held.width == pytest.approx(0.28, abs=0.01)
    one_of_fifty = [replace(one, measured=0.3 if number % 50 == 0 else 0.15) for number, one in enumerate(limits(200))]
    assert fit_ranges(one_of_fifty).reaches[Kind.BOUND].above == 0
    assert Kind.BOUND not in fit_ranges(limits(9)).reaches


def test_simulated_jobs_do_not_narrow_ranges_of_jobs_that_ran() -> None:
    simulated = [replace(one, job=f"made {one.job}", is_real=False) for one in savings(200, error=0.001)]
    ran = savings(50)
    assert fit_ranges([*ran, *simulated]) == fit_ranges(ran)
    few = savings(9)
    assert fit_ranges(few).reaches == {}
    assert fit_ranges([*few, *simulated]).reaches == {}


def test_a_rule_that_is_further_off_gets_wider_ranges() -> None:
    near = [replace(one, cause="near") for one in savings(60, error=0.03)]
    far = [replace(one, job=f"far {one.job}", cause="far") for one in savings(61, error=0.12)]
    few = [replace(one, job=f"few {one.job}", cause="few") for one in savings(1, error=0.5)]
    ranges = fit_ranges([*near, *far, *few])
    assert ranges.factors["far"] > 2.5 * ranges.factors["near"]
    assert ranges.factors["few"] < 2
    (held,) = check_ranges([*near, *far])
    assert 0.85 < held.inside < 0.95


def test_rows_are_read_as_they_were_written() -> None:
    rows = [*findings(5), replace(row("quiet, healthy"), cause="", kind=None, is_right=None, low=None, high=None)]
    text = write_rows(rows)
    assert write_rows(read_rows(text)) == text
    assert [(one.job, one.kind, one.is_right) for one in read_rows(text)] == [
        (one.job, one.kind, one.is_right) for one in rows
    ]


def test_few_rounds_are_drawn_towards_the_usual_spread() -> None:
    assert standard_error([0.2, 0.2, 0.2], 0.04) == pytest.approx(0.04 * (2 / 4 / 3) ** 0.5)
    assert standard_error([0.1, 0.3], 0.0) == pytest.approx((0.02 / 3 / 2) ** 0.5)
