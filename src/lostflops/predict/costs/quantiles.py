"""Tails and quantiles of the F and t distributions, by the incomplete beta function's continued fraction."""

from __future__ import annotations

from functools import lru_cache
from math import exp, inf, lgamma, log, log1p
from typing import Final

_TINY: Final = 1e-300
_TERMS: Final = 300


def f_tail(ratio: float, above: float, below: float) -> float:
    """Return the probability that chance alone gives an F ratio of at least `ratio`; `above` and `below` are the
    degrees of freedom of numerator and denominator.

    >>> round(f_tail(4.96, 1, 10), 3), f_tail(0, 3, 10)
    (0.05, 1.0)
    """
    return _incomplete_beta(below / (below + above * ratio), below / 2, above / 2) if ratio > 0 else 1.0


@lru_cache(maxsize=4096)
def t_quantile(confidence: float, freedom: float) -> float:
    """Return the t that includes this share of all draws, on both sides; infinite without a degree of freedom.

    >>> round(t_quantile(0.99, 10), 3), round(t_quantile(0.95, 1), 2)
    (3.169, 12.71)
    """
    if freedom < 1:
        return inf
    low, high = 0.0, 1.0
    while f_tail(high * high, 1, freedom) > 1 - confidence:
        high *= 2
    for _ in range(48):
        middle = (low + high) / 2
        if f_tail(middle * middle, 1, freedom) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(x, a, b) / a
    return 1 - front * _fraction(1 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    """Evaluate the continued fraction by Lentz's method."""
    upper, lower = 1.0, 1 / _avoid_zero(1 - (a + b) * x / (a + 1))
    value = lower
    for m in range(1, _TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            lower = 1 / _avoid_zero(1 + term * lower)
            upper = _avoid_zero(1 + term / upper)
            value *= upper * lower
        if abs(upper * lower - 1) < 1e-14:
            break
    return value


def _avoid_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
