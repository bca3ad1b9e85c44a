"""Periods in the times of steps, where the truth is known, and none in noise."""

from __future__ import annotations

import numpy as np
import pytest

from lostflops.account.pace.rhythm import find_rhythm


def noise(seed: int, steps: int = 36, *, spread: float = 0.06) -> np.ndarray:
    """Steps of 10 ms that are slow together, of which one in twelve stalls."""
    rng = np.random.default_rng(seed)
    state = rng.normal(size=steps)
    for at in range(1, steps):
        state[at] = 0.5 * state[at - 1] + 0.87 * state[at]
    return 1e7 * np.exp(spread * state) * (1 + (rng.random(steps) < 1 / 12) * rng.uniform(0.3, 10, steps))


@pytest.mark.parametrize("period", [2, 3, 5, 8])
def test_a_period_is_found_in_noise(period: int) -> None:
    """Half a step more, in one of `period` steps; steps 14 to 17 were profiled, and are missing."""
    step = np.array([*range(1, 14), *range(18, 50)])
    found = 0
    for seed in range(20):
        is_slow = step % period == 1
        times = noise(seed, step.size) + 5e6 * is_slow
        made = find_rhythm(step, times)
        if made is not None and made.period == period:
            found += 1
            assert (made.is_slow == is_slow).all()
            assert made.excess == pytest.approx(5e6, rel=0.3)
            part = 5e6 * is_slow.mean()
            assert made.share == pytest.approx(part / (1e7 + part), abs=0.05)
    assert found >= (18 if period < 8 else 8)


@pytest.mark.parametrize("spread", [0.02, 0.06, 0.2])
def test_noise_has_no_period(spread: float) -> None:
    alarms = [find_rhythm(np.arange(1, 37), noise(seed, spread=spread)) for seed in range(200)]
    assert sum(one is not None for one in alarms) <= 2


def test_growth_and_a_stall_are_no_period() -> None:
    step = np.arange(1, 41)
    assert find_rhythm(step, 1e7 + 1e5 * step) is None
    assert find_rhythm(step, noise(1, 40) + 3e10 * (step == 17)) is None
