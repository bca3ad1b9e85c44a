"""Against printed tables of both distributions."""

import math

import pytest

from lostflops.predict.costs.quantiles import f_tail, t_quantile


@pytest.mark.parametrize(
    ("confidence", "freedom", "value"),
    [(0.99, 1, 63.657), (0.99, 2, 9.925), (0.99, 5, 4.032), (0.99, 18, 2.878), (0.99, 120, 2.617), (0.95, 10, 2.228)],
)
def test_quantiles_of_t_are_those_of_tables(confidence: float, freedom: int, value: float) -> None:
    assert t_quantile(confidence, freedom) == pytest.approx(value, abs=6e-4)


def test_without_a_degree_of_freedom_nothing_is_known() -> None:
    assert t_quantile(0.99, 0) == math.inf


@pytest.mark.parametrize(
    ("ratio", "above", "below", "tail"),
    [(3.24, 3, 16, 0.05), (5.29, 3, 16, 0.01), (9.01, 3, 16, 0.001), (4.01, 6, 18, 0.01), (6.55, 3, 10, 0.01)],
)
def test_tails_of_f_are_those_of_tables(ratio: float, above: int, below: int, tail: float) -> None:
    assert f_tail(ratio, above, below) == pytest.approx(tail, rel=0.02)
