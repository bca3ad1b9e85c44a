"""A rank that becomes slower at once, or bit by bit."""

from __future__ import annotations

import numpy as np
import pytest

from lostflops.explain.advise.signs.drift import Drift, _drift

STEPS = np.arange(100, 400)


def drift_of(ratio: np.ndarray, seed: int = 0) -> Drift | None:
    """Rank 2 takes `ratio` times as long as three even peers."""
    noise = np.random.default_rng(seed).normal(1, 0.02, (4, STEPS.size))
    return _drift(2, 1e8 * ratio * noise[0], 1e8 * noise[1:], STEPS)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("at", [20, 150, 200])
def test_a_jump_is_dated(at: int, seed: int) -> None:
    found = drift_of(np.where(np.arange(300) < at, 1.0, 1.4), seed)
    if at == 20:  # most of the first quarter is slow: no drift is seen, or it is dated
        assert found is None or found.since is not None
        return
    assert found is not None
    assert found.since is not None
    assert abs(found.since - STEPS[at]) <= 2


@pytest.mark.parametrize("seed", range(10))
def test_a_steady_rise_has_no_date(seed: int) -> None:
    found = drift_of(np.linspace(1, 1.5, 300), seed)
    assert found is not None
    assert found.since is None


def test_a_single_stall_is_no_jump_and_no_drift() -> None:
    ratio = np.ones(300)
    ratio[250] = 1000
    assert drift_of(ratio) is None


def test_a_stall_does_not_hide_a_jump() -> None:
    ratio = np.where(np.arange(300) < 150, 1.0, 1.4)
    ratio[10] = 1000
    found = drift_of(ratio)
    assert found is not None
    assert found.since == STEPS[150]


def test_few_steps_have_no_date() -> None:
    ratio = np.where(np.arange(12) < 6, 1.0, 1.4)
    own, others = 1e8 * ratio, np.full((3, 12), 1e8)
    found = _drift(2, own, others, np.arange(12))
    assert found is None or found.since is None
