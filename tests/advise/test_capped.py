"""Gains that are more than what their cause takes."""

from types import SimpleNamespace
from typing import Any

import pytest

from lostflops.advise.signs.capped import capped


@pytest.mark.parametrize(
    ("lost", "gain"),
    [
        pytest.param(0.3, None, id="what it gains is its own"),
        pytest.param(0.06, 0.06, id="a late rank runs Python too, and the others wait for it"),
    ],
)
def test_the_gain_of_another_cause_is_cut_off(lost: float, gain: float | None) -> None:
    case: Any = SimpleNamespace(price=lambda change: SimpleNamespace(gain=0.4, doubt=0.1))
    found = capped(case, "python=0.1x", lost, "Python")
    assert (found.share if found is not None else None) == gain
    if found is not None:
        assert (found.low, found.high) == pytest.approx((0.045, 0.075))
