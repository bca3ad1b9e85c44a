"""Intervals of a curve inside what was measured, between its pieces, and beyond."""

from __future__ import annotations

import pytest
from tests.predict.costs.made_times import Made, doubling, line

from lostflops.predict.costs.fit import fit_curve

SIZES = doubling(1024, 2**26)


def test_intervals_hold_new_measurements() -> None:
    made, held, count = Made(4), 0, 0
    for _ in range(60):
        alpha, beta = made.constants()
        curve = fit_curve(SIZES, made.samples(SIZES, line(alpha, beta), 1))
        for size, (ns,) in zip(SIZES, made.samples(SIZES, line(alpha, beta), 1), strict=True):
            held += curve.interval(size).low <= ns <= curve.interval(size).high
            count += 1
    assert 0.97 <= held / count < 1


def test_beyond_the_measured_sizes_it_is_said_and_widens() -> None:
    curve = fit_curve(SIZES, Made(6).samples(SIZES, line(9e3, 1), 5))
    inside, near, far = (curve.interval(2**power) for power in (26, 27, 31))
    assert (inside.reach, near.reach) == ("", "2x the largest size measured")
    assert far.reach == "32x the largest size measured"
    shares = [(one.high - one.low) / one.ns for one in (inside, near, far)]
    assert shares[0] < shares[1] < shares[2]
    assert shares[2] > 1
    below = curve.interval(256)
    assert below.reach == "1/4 of the smallest size measured"
    assert below.high - below.low > curve.interval(1024).high - curve.interval(1024).low


def test_between_two_pieces_both_may_hold() -> None:
    times = [[20e3 + 0.1 * size if size < 2**20 else 300e3 + 0.1 * size] for size in SIZES]
    curve = fit_curve(SIZES, times)
    assert [piece.first for piece in curve.pieces] == [1024, 2**20]
    between, size = curve.interval(700_000), 700_000
    assert between.ns == pytest.approx(20e3 + 0.1 * size, rel=0.01)
    assert between.high > 300e3 + 0.1 * size
    assert curve.interval(2**19).high < 300e3
