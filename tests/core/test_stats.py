"""Distributions against SciPy's own, series against known truth, and the spread between real runs."""

import csv
import gzip
from collections import defaultdict
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tests.shared_data import STEP_SERIES, needs_step_series

from lostflops.account.pace.blocks import mean, typical
from lostflops.core.stats import (
    MachineKind,
    effective_steps,
    f_tail,
    fisher_tail,
    log_chi_square,
    mann_whitney_tail,
    t_quantile,
    t_to_normal,
    variance_bound,
    without_period,
)

FREEDOM = st.floats(1, 1e5)


@given(st.floats(0.01, 0.999), FREEDOM)
def test_quantiles_of_t(confidence: float, freedom: float) -> None:
    assert t_quantile(confidence, freedom) == pytest.approx(stats.t.ppf((1 + confidence) / 2, freedom), rel=1e-6)


def test_without_a_degree_of_freedom_nothing_is_known() -> None:
    assert t_quantile(0.99, 0.9) == np.inf


@given(st.floats(0.01, 100), st.floats(1, 50), FREEDOM)
def test_tails_of_f(ratio: float, above: float, below: float) -> None:
    assert f_tail(ratio, above, below) == pytest.approx(stats.f.sf(ratio, above, below), rel=1e-6, abs=1e-12)


@given(FREEDOM, st.floats(0.1, 0.99))
def test_a_variance_is_at_most_its_bound(freedom: float, assured: float) -> None:
    assert variance_bound(freedom, assured) == pytest.approx(freedom / stats.chi2.isf(assured, freedom), rel=1e-6)


@given(st.floats(-6, 6), st.floats(2, 200))
def test_deviates_of_t_become_normal(deviate: float, freedom: float) -> None:
    exact = stats.norm.isf(stats.t.sf(abs(deviate), freedom)) * np.sign(deviate)
    assert float(t_to_normal(np.array(deviate), np.array(freedom))) == pytest.approx(exact, rel=0.021, abs=1e-9)


@pytest.mark.parametrize("freedom", [1.0, 7.0, 40.0])
def test_logarithms_of_measured_variances(freedom: float) -> None:
    drawn = np.log(np.random.default_rng(0).chisquare(freedom, 100_000) / freedom)
    middle, variance = log_chi_square(np.array([freedom]))
    assert middle[0] == pytest.approx(drawn.mean(), abs=0.03)
    assert variance[0] == pytest.approx(drawn.var(), rel=0.05)


@given(st.lists(st.integers(0, 10**6), min_size=6, max_size=30, unique=True), st.integers(2, 4))
def test_order_is_tested_as_scipy_does(values: list[int], count: int) -> None:
    first, second = values[:count], values[count:]
    above = sum(one > other for one in first for other in second)
    method = "exact" if above == len(first) * len(second) else "asymptotic"
    expected = stats.mannwhitneyu(first, second, alternative="greater", method=method).pvalue
    assert mann_whitney_tail(above, len(first), len(second)) == pytest.approx(expected, rel=1e-9)


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 20), st.integers(0, 20))
def test_fishers_test_is_scipys(hits: int, misses: int, other_hits: int, other_misses: int) -> None:
    expected = stats.fisher_exact([[hits, misses], [other_hits, other_misses]], alternative="greater").pvalue
    whole = hits + misses + other_hits + other_misses
    assert fisher_tail(hits, hits + misses, hits + other_hits, whole) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("correlation", [-0.3, 0.0, 0.5, 0.9])
def test_effective_steps_are_those_of_an_autoregressive_series(correlation: float) -> None:
    chance = np.random.default_rng(1)
    found = []
    for _ in range(40):
        drawn = chance.normal(size=2000)
        for step in range(1, drawn.size):
            drawn[step] += correlation * drawn[step - 1]
        found.append(effective_steps(drawn))
    assert np.median(found) == pytest.approx(2000 * (1 - correlation) / (1 + correlation), rel=0.15)


@pytest.mark.parametrize("times", [np.ones(50), np.arange(3.0)])
def test_steps_that_show_no_correlation_count_as_they_are(times: np.ndarray) -> None:
    assert effective_steps(times) == times.size


@pytest.mark.parametrize("period", [2, 7, 40])
def test_what_comes_back_is_no_error(period: int) -> None:
    times = 100 + np.random.default_rng(2).normal(size=400)
    times[::period] += 50
    assert without_period(times).std() < 1.5
    usual = 100 + 50 / period
    assert without_period(times).mean() == pytest.approx(usual, abs=0.2)
    assert without_period(times[: 10 * period + 1]).mean() == pytest.approx(usual, abs=1.5), "one more long step"


def test_a_few_steps_that_alternate_by_chance_count_at_most_twice() -> None:
    assert effective_steps(np.array([1.0, 3, 3, 1, 1, 3, 1, 3, 3, 1])) <= 20


def test_long_steps_at_random_remain_an_error() -> None:
    chance = np.random.default_rng(3)
    times = 100 + 50.0 * (chance.random(400) < 0.1)
    wandering = 100 + np.cumsum(chance.normal(size=400))
    for series in (times, wandering):
        assert without_period(series) is series


@needs_step_series
def test_runs_on_accelerators_differ_by_no_more_than_is_assumed() -> None:
    steps = defaultdict(list)
    with gzip.open(STEP_SERIES, "rt") as rows:
        for row in csv.DictReader(rows):
            steps[row["system"], row["run"]].append(float(row["step_s"]))
    for location in (typical, mean):
        levels = {key: np.log(location(np.array(times[2:])).value) for key, times in steps.items()}
        pairs = [abs(levels[a] - levels[b]) for a, b in combinations(levels, 2) if a[0] == b[0]]
        assert len(pairs) == 42
        assert np.quantile(pairs, 0.9) <= MachineKind.ACCELERATOR.between
