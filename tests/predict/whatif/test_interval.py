"""What the interval is made of, and whether nine of ten runs fall into it."""

import numpy as np
import pytest

from lostflops.predict.whatif.interval import BETWEEN_RUNS, FIRST_STEP, Doubts, doubts, noise

NINE_OF_TEN = 1.645


def test_doubts_add_as_squares() -> None:
    assert Doubts(3.0, 4.0, 0.0, 0.0).together == 5
    assert Doubts(1.0, 1.0, 1.0, 1.0).together == 2


def test_doubts_of_changes_do_not_cancel() -> None:
    """One makes steps 30 longer, the other 40 shorter; each is unsure by a tenth of that."""
    assert doubts(100.0, replay_error=0.0, moved=[(30.0, 0.1), (-40.0, 0.1)], noise=0.0).changes == pytest.approx(5)


def test_steps_count_once_however_many_ranks() -> None:
    step, times = np.array([0, 1, 2]), np.array([90, 100, 110])
    assert noise(np.tile(step, 8), np.tile(times, 8)) == pytest.approx(noise(step, times))


@pytest.mark.parametrize(("steps", "first"), [(2, 0.0), (3, 0.0), (3, 0.8), (6, 0.8), (10, 0.0)])
@pytest.mark.few(2)
def test_nine_of_ten_runs_of_the_same_job_are_inside(steps: int, first: float) -> None:
    """Steps deviate by 5%, the first takes `first` more by as much as that may differ, and runs differ by themselves.
    Nothing is changed, so that all that can be wrong is chance."""
    rng, trials = np.random.default_rng(7), 2000
    level = 1e6 * (1 + rng.normal(0, BETWEEN_RUNS / NINE_OF_TEN / np.sqrt(2), (trials, 2, 1)))
    runs = level * (1 + rng.normal(0, 0.05, (trials, 2, steps)))
    runs[:, :, 0] += 1e6 * first * (1 + rng.normal(0, FIRST_STEP / NINE_OF_TEN, (trials, 2)))
    inside = 0
    for measured, other in runs:
        spread = noise(np.arange(steps), measured.astype(np.int64))
        predicted = float(measured.mean())
        half = doubts(predicted, replay_error=0.0, moved=(), noise=spread).together
        inside += abs(other.mean() - predicted) <= half
    assert 0.88 <= inside / trials <= 0.96


@pytest.mark.parametrize(("steps", "least"), [(6, 0.6), (12, 0.78), (24, 0.82)])
def test_steps_that_are_slow_together_make_it_wider(steps: int, least: float) -> None:
    """Neighbours share most of what slows them down. Few steps cannot show all of that: taken for independent, a bit
    more than half of the runs would be inside."""
    rng, trials, lead = np.random.default_rng(3), 1000, 30
    off = rng.normal(0, 0.04, (trials, 2, lead + steps))
    for at in range(1, lead + steps):
        off[:, :, at] += 0.6 * off[:, :, at - 1]
    runs = 1e6 * (1 + off[:, :, lead:])
    inside = sum(
        abs(other.mean() - measured.mean())
        <= measured.mean() * np.hypot(noise(np.arange(steps), measured.astype(np.int64)), BETWEEN_RUNS)
        for measured, other in runs
    )
    assert least <= inside / trials <= 0.95


def test_the_start_of_the_recording_is_no_chance() -> None:
    """Six steps as recorded on a CPU: with the first among the others they would differ by a third."""
    assert noise(np.arange(6), np.array([211, 106, 114, 122, 121, 135])) == pytest.approx(0.11, abs=0.02)
