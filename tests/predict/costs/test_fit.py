"""Curves against the constants that made the times."""

from __future__ import annotations

import math

import pytest
from tests.predict.costs.made_times import Made, doubling, line, switching

from lostflops.core.errors import UnknownCost
from lostflops.predict.costs.curve import Curve
from lostflops.predict.costs.fit import fit_curve

CASES = [(count, disturbed) for disturbed in (0.0, 0.02) for count in (1, 3, 10)]
FITS = 150 // len(CASES)


def holds(curve: Curve, alpha: float, beta: float) -> bool:
    return all(
        piece.alpha.low <= alpha <= piece.alpha.high and piece.beta.low <= beta <= piece.beta.high
        for piece in curve.pieces
    )


def test_intervals_hold_the_constants_and_no_switch_is_invented() -> None:
    held = straight = 0
    for case, (count, disturbed) in enumerate(CASES):
        made = Made(case, disturbed=disturbed)
        for _ in range(FITS):
            (alpha, beta), sizes = made.constants(), made.grid()
            curve = fit_curve(sizes, made.samples(sizes, line(alpha, beta), count))
            held += holds(curve, alpha, beta)
            straight += len(curve.pieces) == 1
    assert held >= 0.95 * FITS * len(CASES)
    assert straight >= 0.99 * FITS * len(CASES)


def test_sizes_that_are_noisier_than_others_are_not_taken_for_a_switch() -> None:
    made, held, straight = Made(8, noise=0.02, noisy_below=2**16), 0, 0
    for _ in range(50):
        (alpha, beta), sizes = made.constants(), made.grid()
        curve = fit_curve(sizes, made.samples(sizes, line(alpha, beta), 20))
        held += holds(curve, alpha, beta)
        straight += len(curve.pieces) == 1
    assert held >= 46
    assert straight >= 48


@pytest.mark.parametrize("count", [1, 5])
def test_a_protocol_switch_is_found_where_it_is(count: int) -> None:
    made, sizes, found = Made(3), doubling(1024, 2**28), 0
    for _ in range(30):
        place = sizes[made.random.integers(4, len(sizes) - 4)]
        samples = made.samples(sizes, switching(place), count)
        switches = [piece.first for piece in fit_curve(sizes, samples).pieces[1:]]
        found += len(switches) == 1 and place / 2 <= switches[0] <= place * 2
    assert found >= 29


@pytest.mark.parametrize("place", range(17))
def test_a_whole_disturbed_size_bends_nothing(place: int) -> None:
    sizes = doubling(1024, 2**26)
    times = [[20e3 + 0.1 * size] * 5 for size in sizes]
    times[place] = [5 * ns for ns in times[place]]
    (piece,) = fit_curve(sizes, times).pieces
    assert piece.alpha.value == pytest.approx(20e3, rel=0.01)
    assert piece.beta.value == pytest.approx(0.1, rel=0.01)


@pytest.mark.parametrize("count", [1, 2])
def test_sizes_left_out_at_the_end_may_be_a_bend_so_intervals_hold_them(count: int) -> None:
    sizes = doubling(1024, 2**26)
    slow = sizes[-count:]
    times = [[(20e3 + 0.1 * size) * (2 if size in slow else 1)] * 5 for size in sizes]
    curve = fit_curve(sizes, times)
    assert len(curve.pieces) == 1
    for size in (*slow, 2**27, 2**30):
        told, truth = curve.interval(size), 2 * (20e3 + 0.1 * size)
        assert told.low <= truth / 2 <= told.ns * 1.01
        assert truth <= told.high * (1 + 1e-6)
    assert curve.interval(sizes[-count - 1]).high < 1.2 * curve.at(sizes[-count - 1]), "the others are as sure as ever"


def test_times_fit_by_their_relative_error() -> None:
    sizes = doubling(1024, 2**30)
    curve = fit_curve(sizes, Made(1).samples(sizes, line(5e3, 0.5), 20))
    assert all(abs(curve.at(size) / (5e3 + 0.5 * size) - 1) < 0.03 for size in sizes)


def test_a_difference_that_nobody_would_see_makes_no_piece() -> None:
    sizes = doubling(1024, 2**28)
    times = [[(20e3 + 0.1 * size) * (1 if size < 2**20 else 1.03)] for size in sizes]
    assert len(fit_curve(sizes, times).pieces) == 1


def test_without_latency_alpha_is_zero_and_its_interval_holds_small_ones() -> None:
    sizes = doubling(2**20, 2**28)
    curve = fit_curve(sizes, [[0.1 * size - 20e3] for size in sizes])
    assert curve.pieces[0].alpha.value == curve.pieces[0].alpha.low == 0
    assert curve.pieces[0].alpha.high > 0


def test_time_never_falls_with_size() -> None:
    sizes = doubling(1024, 2**15)
    curve = fit_curve(sizes, [[40e3 - size / 10] for size in sizes])
    assert curve.pieces[0].beta.value == 0
    assert curve.pieces[0].beta.high > 0


def test_one_size_tells_nothing_of_others() -> None:
    with pytest.raises(UnknownCost, match="one size"):
        fit_curve([1024], [[5.0, 6.0]])
    with pytest.raises(UnknownCost, match="nothing"):
        fit_curve([1024], [[]])


def test_two_sizes_give_a_line_of_unknown_accuracy() -> None:
    curve = fit_curve([1000, 2000], [[3000.0], [4000.0]])
    assert (curve.at(1000), curve.at(4000)) == pytest.approx((3000, 6000))
    assert curve.pieces[0].beta.high == curve.interval(1500).high == math.inf
    assert curve.interval(1500).low == 0


def test_three_sizes_give_a_wide_interval() -> None:
    piece = fit_curve([1000, 2000, 4000], [[3000.0], [4100.0], [6000.0]]).pieces[0]
    assert piece.beta.low == 0
    assert 1 < piece.beta.high < math.inf


def test_many_sizes_are_fitted_with_as_many_pieces() -> None:
    sizes = [1000 * number for number in range(1, 400)]
    times = Made(5).samples(sizes, lambda size: 9e3 + size if size < 100_000 else 60e3 + 0.2 * size, 1)
    curve = fit_curve(sizes, times)
    assert len(curve.pieces) == 2
    assert curve.pieces[1].first == pytest.approx(100_000, rel=0.15)


def test_the_order_of_sizes_does_not_matter_and_equal_ones_are_joined() -> None:
    sizes = doubling(1024, 2**20)
    times = Made(2).samples(sizes, line(9e3, 1), 4)
    parts = [(size, ns[:2]) for size, ns in zip(sizes, times, strict=True)]
    parts += [(size, ns[2:]) for size, ns in zip(sizes, times, strict=True)]
    assert fit_curve([size for size, _ in parts[::-1]], [ns for _, ns in parts[::-1]]) == fit_curve(sizes, times)


def test_thousands_of_sizes_are_fitted_by_their_neighbours() -> None:
    sizes = list(range(1_000, 3_001_000, 1_000))
    times = Made(3, noise=0.05).samples(sizes, line(50e3, 0.1), 1)
    (piece,) = fit_curve(sizes, times).pieces
    assert (piece.first, piece.last) == (sizes[0], sizes[-1])
    assert piece.alpha.low <= 50e3 <= piece.alpha.high
    assert piece.beta.value == pytest.approx(0.1, rel=0.01)


def test_three_neighbours_off_the_line_are_a_bend_however_noisy_the_others() -> None:
    """A token bucket: small transfers scatter from size to size, large ones lie on a line of half the rate."""
    uneven = [0.6, 0.9, 1.1, 1.05, 1.1, 1.4, 1.0]
    sizes = [1024 << power for power in range(13)]
    small = [20e3 + 20 * size * factor for size, factor in zip(sizes, uneven, strict=False)]
    large = [40 * size - 2.4e6 for size in sizes[7:]]
    times = [[ns * (1 + 0.002 * (place - 5)) for place in range(11)] for ns in (*small, *large)]
    assert fit_curve(sizes, times).pieces[-1].beta.value == pytest.approx(40, rel=0.1)
