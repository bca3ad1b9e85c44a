"""Medians, means and spreads of groups, against plain loops and known distributions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lostflops.fleet.robust import compute_group_means, compute_group_medians, estimate_noise

ROWS = st.lists(st.tuples(st.integers(0, 4), st.floats(-1, 1)), max_size=40)


@given(ROWS)
def test_medians_are_those_of_each_group(rows: list[tuple[int, float]]) -> None:
    groups, values = np.array([row[0] for row in rows], int), np.array([row[1] for row in rows], float)
    naive = [np.median(values[groups == group]) if (groups == group).any() else np.nan for group in range(6)]
    np.testing.assert_allclose(compute_group_medians(values, groups, 6), naive)


def test_one_wild_value_does_not_move_a_mean() -> None:
    values = np.array([1.0, 1.01, 0.99, 1.0, 9.0])
    means = compute_group_means(values, np.full(5, 1e-4), np.zeros(5, int), 2, 4)
    assert means.mean[0] == pytest.approx(1, abs=0.005)
    assert np.isnan(means.mean[1])
    assert means.count.tolist() == [5, 0]


def test_values_that_differ_more_than_they_may_have_a_larger_error() -> None:
    group = np.zeros(4, int)
    alike, apart = (
        compute_group_means(np.array(values), np.full(4, 1e-4), group, 1, 4).variance[0]
        for values in ([1.0, 1.0, 1.0, 1.0], [1.0, 1.1, 0.9, 1.2])
    )
    assert apart > 2 * alike


@pytest.mark.parametrize(("freedom", "low", "high"), [(3, 2.4, 4.5), (5, 3.7, 8), (1e6, 15, 31)])
def test_spread_and_tails_are_estimated(freedom: float, low: float, high: float) -> None:
    random = np.random.default_rng(3)
    values = 0.01 * random.standard_t(freedom, (2, 20_000)) + 0.004 * random.standard_normal((2, 20_000))
    noise = estimate_noise(values[1] - values[0], np.full(20_000, 2 * 0.004**2))
    assert noise.spread == pytest.approx(0.01, rel=0.1)
    assert low < noise.freedom < high


def test_nothing_to_compare_is_no_noise() -> None:
    assert estimate_noise(np.zeros(0), np.zeros(0)).spread == 0
