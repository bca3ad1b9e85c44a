import numpy as np
import pytest

from lostflops.predict.fit.step_times import FittedStepTime, times

FIXED, EACH = 4e6, 1e5


def _measured(chance: np.random.Generator, noise: float, sizes: tuple[int, ...] = (16, 32, 64)) -> list[FittedStepTime]:
    return [
        FittedStepTime(size, (FIXED + EACH * size) * (1 + noise * chance.standard_normal()), noise, 20)
        for size in sizes
    ]


def test_exact_times_give_the_line_and_the_batch_of_nine_tenths() -> None:
    found = times(_measured(np.random.default_rng(0), 0.0))
    assert found is not None
    assert found.near is not None
    assert found.asymptote is not None
    assert found.near.value == pytest.approx(9 * FIXED / EACH)
    assert found.asymptote.value == pytest.approx(1e9 / EACH)
    near = found.near.value
    assert found.rate(near).value == pytest.approx(0.9 * found.asymptote.value)
    assert found.is_linear


def test_intervals_hold_the_truth_about_nine_times_of_ten() -> None:
    chance = np.random.default_rng(1)
    held = {"rate": 0, "near": 0, "most": 0}
    trials = 200
    for _ in range(trials):
        found = times(_measured(chance, 0.02))
        assert found is not None
        truths = {"rate": 1e9 * 256 / (FIXED + EACH * 256), "near": 9 * FIXED / EACH, "most": 1e9 / EACH}
        spans = {"rate": found.rate(256), "near": found.near, "most": found.asymptote}
        for name, truth in truths.items():
            span = spans[name]
            held[name] += span is not None and span.low <= truth <= span.high
    assert all(0.85 * trials < count for count in held.values()), held


def test_a_flat_start_is_no_line() -> None:
    """A device that a small batch does not fill: steps take the same until it does."""
    found = times([FittedStepTime(size, max(10e6, 2e5 * size), 0.005, 20) for size in (16, 50, 200)])
    assert found is not None
    assert found.is_linear is False


def test_noise_is_not_called_a_bend() -> None:
    chance = np.random.default_rng(2)
    calls = [times(_measured(chance, 0.03)) for _ in range(200)]
    assert sum(found is not None and found.is_linear is False for found in calls) <= 4


def test_times_that_do_not_grow_tell_no_asymptote() -> None:
    found = times(
        [FittedStepTime(size, 10e6 * (1 + off), 0.01, 20) for size, off in ((8, 0.01), (16, 0.0), (32, 0.005))]
    )
    assert found is not None
    assert found.near is None
    assert found.asymptote is None


def test_one_step_tells_nothing() -> None:
    assert times([FittedStepTime(8, 1e6, float("inf"), 0), FittedStepTime(16, 2e6, 0.01, 9)]) is None
