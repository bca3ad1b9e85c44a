"""What the interval is made of, and whether nine of ten runs fall into it."""

import numpy as np
import pytest

from lostflops.predict.interval import BETWEEN_RUNS, Doubts, doubts, noise


def test_doubts_add_as_squares() -> None:
    assert Doubts(3.0, 4.0, 0.0, 0.0).together == 5
    assert Doubts(1.0, 1.0, 1.0, 1.0).together == 2


def test_doubts_of_changes_do_not_cancel() -> None:
    """One makes steps 30 longer, the other 40 shorter; each is unsure by a tenth of that."""
    assert doubts(100.0, replay_error=0.0, moved=[(30.0, 0.1), (-40.0, 0.1)], noise=0.0).changes == pytest.approx(5)


def test_steps_count_once_however_many_ranks() -> None:
    step, times = np.array([0, 1, 2]), np.array([90, 100, 110])
    assert noise(np.tile(step, 8), np.tile(times, 8)) == pytest.approx(noise(step, times))


@pytest.mark.parametrize("steps", [2, 3, 10])
def test_nine_of_ten_runs_of_the_same_job_are_inside(steps: int) -> None:
    """Steps of 100 with a deviation of 5, and runs that differ by themselves within BETWEEN_RUNS in nine of ten cases:
    nothing is changed, so that all that can be wrong is chance."""
    rng, trials = np.random.default_rng(7), 2000
    level = 1e6 * (1 + rng.normal(0, BETWEEN_RUNS / 1.645 / np.sqrt(2), (trials, 2, 1)))
    runs = level * (1 + rng.normal(0, 0.05, (trials, 2, steps)))
    inside = 0
    for measured, other in runs:
        spread = noise(np.arange(steps), measured.astype(np.int64))
        predicted = float(measured.mean())
        half = doubts(predicted, replay_error=0.0, moved=(), noise=spread).together
        inside += abs(other.mean() - predicted) <= half
    assert 0.88 <= inside / trials <= 0.95
