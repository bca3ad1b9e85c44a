"""What-ifs that are made for real: how they are scored, on trials made up."""

import pytest
from benchmarks.whatif_real import EXPERIMENTS, Trial, show


def trial(predicted: float, measured: float) -> Trial:
    return Trial("made_up", "bucket_mb=2", 0.2, predicted, predicted - 0.015, predicted + 0.015, measured, load=0.5)


def test_an_error_is_a_share_of_the_measured_step() -> None:
    assert trial(0.11, 0.1).error == pytest.approx(0.1)
    assert trial(0.11, 0.101).is_inside
    assert not trial(0.11, 0.13).is_inside


def test_the_summary_has_the_mean_without_sign() -> None:
    text = show([trial(0.11, 0.1), trial(0.09, 0.1)], {"other": "does not apply"})
    assert "Mean error 10.0% of the step" in text
    assert "2 of 2 inside the range" in text
    assert "other: does not apply" in text


def test_there_are_twenty_changes_each_of_a_job_of_its_own() -> None:
    assert len(EXPERIMENTS) >= 20
    assert len({one.name for one in EXPERIMENTS}) == len(EXPERIMENTS)
    for one in EXPERIMENTS:
        assert one.flags or one.rates or one.ranks, f"{one.name} changes nothing"
